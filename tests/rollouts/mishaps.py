"""All that a tool may do wrong, a method each, for ``worlds.Counting`` to be told. Workers import it: no jax."""

import ctypes
import os
import pickle
import re
import resource
import signal
import sys
import time
from pathlib import Path

from rlagents.facts import Observation, TransientToolError, TurnFacts
from rlagents.rollouts.faults import Answer
from rlagents.rollouts.surroundings import Surroundings

KEPT = []
"""What leaks: of the process, and of no episode."""


class Mishaps:
    """Of a class that has ``answer`` and ``total``."""

    def do_raise(self, argument):
        self.total += 1000
        raise KeyError(argument)

    def do_exit(self, _):
        sys.exit(3)

    def do_interrupt(self, _):
        raise KeyboardInterrupt

    def do_hang(self, _):
        self.total += 1000
        time.sleep(600)

    def do_wait_for(self, path):
        while not Path(path).exists():
            time.sleep(0.005)
        return self.answer()

    def do_die(self, _):
        os._exit(1)

    def do_die_once(self, path):
        if not Path(path).exists():
            Path(path).write_text("died")
            os._exit(1)
        return self.answer()

    def do_flood(self, argument):
        return self.answer("x" * int(argument))

    def do_flood_aside(self, argument):
        return self.answer("small", extra="x" * int(argument))

    def do_print(self, _):
        for stream in (sys.stdout, sys.stderr):
            stream.write("y" * 2_000_000)
            stream.flush()
        return self.answer(" ".join(os.readlink(f"/proc/self/fd/{descriptor}") for descriptor in (0, 1, 2)))

    def do_allocate(self, argument):
        return self.answer(str(len(bytearray(int(argument)))))

    def do_bytes(self, _):
        return self.answer(b"not text")

    def do_parts(self, _):
        return self.answer([{"type": "image"}])

    def do_surrogate(self, _):
        return self.answer("\ud800")

    def do_nothing(self, _):
        return None

    def do_no_list(self, _):
        return Observation(None, done=False)

    def do_nan(self, _):
        return Observation([], done=False, turn=TurnFacts(float("nan")))

    def do_unpicklable(self, _):
        return self.answer(extra=lambda: None)

    def do_random(self, _):
        return self.answer(os.urandom(8).hex())

    def do_child(self, path):
        """Leaves a child process behind that would write to ``path`` in a second, then hangs."""
        if os.fork() == 0:
            time.sleep(1)
            Path(path).write_text("alive")
            os._exit(0)
        time.sleep(600)

    def do_kill(self, _):
        os.kill(os.getpid(), signal.SIGKILL)

    def do_segfault(self, _):
        ctypes.string_at(0)

    def do_stubborn(self, _):
        """Deaf to what can be refused, and then within C: no Python code runs any more."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        re.match(r"(a+)+$", "a" * 64 + "b")

    def do_keep(self, argument):
        keep(memory=int(argument))
        return self.answer()

    def do_hoard(self, argument):
        """Three children with so much memory each, none of it more than a process may have."""
        for _ in range(3):
            if os.fork() == 0:
                keep(memory=int(argument))
                time.sleep(600)
        time.sleep(600)

    def do_garbage(self, _):
        for descriptor in sockets():
            os.write(descriptor, b"\0" * 7 + b"\x05wrong")
        return self.answer()

    def do_forge(self, _):
        """A frame of the right form around an answer of the wrong kind."""
        forged = pickle.dumps(Answer(7, None))
        for descriptor in sockets():
            os.write(descriptor, len(forged).to_bytes(8, "big") + forged)
        return self.answer()

    def do_close(self, _):
        os.closerange(3, 1000)
        return self.answer()

    def do_detach(self, path):
        """A process in a session of its own that would write to ``path`` in two seconds; none where it is replayed."""
        begun = Path(f"{path}.begun")
        if not begun.exists():
            begun.touch()
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(2)
                    Path(path).write_text("alive")
                os._exit(0)
            os.wait()
        return self.answer()

    def do_where(self, _):
        """What belongs to the whole process."""
        mask = os.umask(0o22)
        os.umask(mask)
        limits = [resource.getrlimit(limit) for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS)]
        handler, alarm = signal.getsignal(signal.SIGTERM), signal.getitimer(signal.ITIMER_REAL)[0] > 0
        blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        return self.answer(f"{os.getcwd()} {len(os.environ)} {mask} {limits} {handler} {alarm} {blocked}")

    def do_disturb(self, _):
        os.chdir("/")
        os.environ.clear()
        os.umask(0o777)
        resource.setrlimit(resource.RLIMIT_NOFILE, (8, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        return self.answer()

    def do_remote(self, argument):
        """A tool elsewhere that is away the first ``count`` times: ``<count> <folder>``."""
        count, folder = argument.split()
        calls = len(list(Path(folder).iterdir()))
        (Path(folder) / str(calls)).touch()
        if calls < int(count):
            raise TransientToolError("503 Service Unavailable")
        return self.answer()

    def do_kill_server(self, path):
        if not Path(path).exists():
            Path(path).write_text("killed")
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(600)
        return self.answer()

    def do_kill_parent(self, _):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)

    def do_strand(self, _):
        """As if something could not be put back."""
        Surroundings.restore = lambda surroundings: "a limit"
        return self.answer()

    def do_lie(self, what):
        lies = {
            "done": Observation([], done="yes"),
            "calls": Observation([], done=False, turn=TurnFacts(tool_calls=float("inf"))),
            "void": Observation([], done=False, turn=TurnFacts(void=None)),
        }
        return lies[what]


def keep(memory=0, files=0):
    if memory:
        KEPT.append(b"x" * memory)
    KEPT.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(files))


def sockets():
    return [descriptor for descriptor in range(3, 100) if Path(f"/proc/self/fd/{descriptor}").is_socket()]
