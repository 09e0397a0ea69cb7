"""Small worlds for tests, importable by worker processes: no jax here."""

import ctypes
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlagents.facts import Observation, Opening, Outcome, Task, Transcript, TransientToolError, TurnFacts
from rlagents.rollouts.surroundings import Surroundings

KEPT = []
"""What leaks: of the process, and of no episode."""


def tool(content, **more):
    return {"role": "tool", "content": content, **more}


class Counting:
    """Adds numbers; ``<command> <argument>`` as the model's text. Every misbehaviour has a command."""

    def __init__(self, task: Task):
        self.task, self.total, self.steps, self.spoiled = task, 0, 0, False

    def step(self, text: str) -> Observation:
        command, _, argument = text.partition(" ")
        self.steps += 1
        return getattr(self, f"do_{command}")(argument)

    def finish(self):
        keep(**self.task.payload.get("leak_at_the_end", {}))
        if self.spoiled:
            raise RuntimeError("no record")
        if self.task.payload.get("bad_record"):
            return lambda: None
        return {"total": self.total, "steps": self.steps, "pid": os.getpid()}

    def answer(self, content=None, **more) -> Observation:
        content = f"total {self.total}" if content is None else content
        return Observation([tool(content, **more)], done=False, turn=TurnFacts(0.5, 1, 1))

    def do_add(self, argument):
        self.total += int(argument)
        return self.answer()

    def do_spoil(self, _):
        self.spoiled = True
        return self.answer()

    def do_pid(self, _):
        return self.answer(str(os.getpid()))

    def do_modules(self, _):
        return self.answer(" ".join(sorted(sys.modules)))

    def do_done(self, _):
        return Observation([], done=True, turn=TurnFacts(1.0))

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


@dataclass(frozen=True)
class CountingEnvironment:
    stop_strings: Sequence[str] = ()
    max_turns: int = 8

    def opening(self, task: Task) -> Opening:
        if task.payload.get("bad_opening"):
            raise RuntimeError("no such task")
        if task.payload.get("hang_opening"):
            time.sleep(600)
        if task.payload.get("opening_of_bytes"):
            return Opening([{"role": "user", "content": b"Count."}])
        if task.payload.get("away"):
            raise TransientToolError("no route to host")
        return Opening([{"role": "user", "content": task.payload.get("question", "Count.")}])

    def start(self, task: Task) -> Counting:
        if task.payload.get("bad_start"):
            raise RuntimeError("no world")
        if task.payload.get("die_at_start"):
            os._exit(2)
        if task.payload.get("hang_start"):
            time.sleep(600)
        return Counting(task)

    def score(self, task: Task, transcripts: Sequence[Transcript]) -> list[Outcome]:
        if task.payload.get("bad_score"):
            raise RuntimeError("no judge")
        if task.payload.get("short_score"):
            return []
        if task.payload.get("hang_score"):
            time.sleep(600)
        if task.payload.get("lying_score"):
            return [task.payload["lying_score"]] * len(transcripts)
        return [Outcome(float(t.record["total"]), named={"steps": float(t.record["steps"])}) for t in transcripts]


class NeedsJax(CountingEnvironment):
    def __reduce__(self):
        return _load_jax, ()


class DiesAtFork(CountingEnvironment):
    def __reduce__(self):
        return _die_at_fork, ()


def _die_at_fork():
    os.register_at_fork(after_in_child=lambda: os._exit(1))
    return DiesAtFork()


def _load_jax():
    import jax  # noqa: F401

    return NeedsJax()


class Echo:
    """Answers anything; over after ``max_steps`` steps."""

    def __init__(self, max_steps: int):
        self.left = max_steps

    def step(self, text: str) -> Observation:
        self.left -= 1
        parts = [tool(f"{len(text)} letters"), tool(f"{self.left} left")]
        return Observation(parts, done=self.left == 0, turn=TurnFacts(len(text) / 100))

    def finish(self):
        return self.left


@dataclass(frozen=True)
class EchoEnvironment:
    stop_strings: Sequence[str] = ()
    max_turns: int = 8

    def opening(self, task: Task) -> Opening:
        return Opening([{"role": "system", "content": "Say."}, {"role": "user", "content": f"Task {task.id}."}])

    def start(self, task: Task) -> Echo:
        return Echo(3)

    def score(self, task: Task, transcripts: Sequence[Transcript]) -> list[Outcome]:
        return [Outcome(float(transcript.record == 0)) for transcript in transcripts]
