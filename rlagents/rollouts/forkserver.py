"""A process that does nothing but fork workers, and the handle to it. Imports no jax.

The server is a fresh interpreter, so workers never inherit jax, its threads or its devices, whatever the training
program has imported; it unpickles the environment once, so a worker starts in milliseconds and shares its pages.
``python -m rlagents.rollouts.forkserver DESCRIPTOR`` is the server; :class:`ForkServer` starts it and speaks to it.
"""

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
from typing import Any

from rlagents.environments.base import Environment
from rlagents.rollouts.episodes import EpisodeRules
from rlagents.rollouts.processes import adopt_orphans, children, kill_orphans
from rlagents.rollouts.wire import receive_frame, send_frame
from rlagents.rollouts.worker import serve


class ServerDiedError(RuntimeError):
    """The server is gone, and its workers with it; :meth:`ForkServer.restart` starts another."""


class ForkServer:
    """Starts the server.

    Args:
      environment: picklable; its class must live in an importable module.
      rules: limits on what environments answer.
      worker_memory_bytes: address space of one worker.

    Raises:
      RuntimeError: the environment could not be loaded in the server, or loading it loaded jax.
    """

    def __init__(self, environment: Environment, rules: EpisodeRules, worker_memory_bytes: int):
        self._name = type(environment).__name__
        self._setup = pickle.dumps((pickle.dumps(environment), rules, worker_memory_bytes))
        self._start()

    def fork(self) -> tuple[int, socket.socket]:
        """A new worker: its process id and the socket to it. Raises ServerDiedError."""
        ours, theirs = socket.socketpair()
        try:
            send_frame(self._connection, pickle.dumps("fork"))
            socket.send_fds(self._connection, [b"."], [theirs.fileno()])
            return self._answer(), ours
        except BaseException as error:
            ours.close()
            if isinstance(error, OSError):
                raise self._died() from error
            raise
        finally:
            theirs.close()

    def kill(self, pid: int) -> None:
        """Kill a worker and every process that it started; returns when it is gone. Raises ServerDiedError."""
        try:
            self._ask(pickle.dumps(pid))
        except OSError as error:
            raise self._died() from error

    def alive(self) -> bool:
        """Whether the server's process is there."""
        return self._process.poll() is None

    def restart(self) -> None:
        """Start another server in place of one that died. Raises RuntimeError as at construction."""
        self._process.kill()
        self.close()
        self._start()

    def close(self) -> None:
        """End the server and all its workers."""
        self._connection.close()
        self._process.wait()

    def _start(self) -> None:
        self._connection, theirs = socket.socketpair()
        # Environments are found where this process finds them.
        variables = os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        command = [sys.executable, "-m", "rlagents.rollouts.forkserver", str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=variables, stdin=subprocess.DEVNULL)
        theirs.close()
        problem = self._ask(self._setup)
        if problem is not None:
            self.close()
            raise RuntimeError(f"tool workers cannot load the environment {self._name}:\n{problem}")

    def _ask(self, request: bytes):
        send_frame(self._connection, request)
        return self._answer()

    def _answer(self):
        answer = receive_frame(self._connection)
        if answer is None:
            raise self._died()
        return pickle.loads(answer)

    def _died(self) -> ServerDiedError:
        return ServerDiedError(f"the server of tool workers died (exit code {self._process.wait()}).")


def main(descriptor: int) -> None:
    """The server: load the environment, then fork and kill as told, until the other side closes."""
    control = socket.socket(fileno=descriptor)
    for number in (signal.SIGINT, signal.SIGHUP):  # the training program decides when to stop
        signal.signal(number, signal.SIG_IGN)
    adopt_orphans()
    setup = receive_frame(control)
    if setup is None:
        return
    pickled, rules, memory_bytes = pickle.loads(setup)
    environment, problem = _load(pickled)
    send_frame(control, pickle.dumps(problem))
    workers: set[int] = set()
    helpers = children(os.getpid())  # what the environment started as it was loaded serves all workers
    try:
        while (request := receive_frame(control)) is not None:
            request = pickle.loads(request)
            if request == "fork":
                answer = _fork(control, environment, rules, memory_bytes)
                workers.add(answer)
            else:
                answer = _kill(request) if request in workers else None
                workers.discard(request)
                kill_orphans({*workers, *helpers})
            send_frame(control, pickle.dumps(answer))
    finally:
        for pid in workers:
            _kill(pid)
        kill_orphans(())


def _load(pickled: bytes) -> tuple[Any, str | None]:
    """The environment, and what is wrong with it (None if nothing is)."""
    try:
        environment = pickle.loads(pickled)
    except Exception:
        return None, traceback.format_exc()
    if "jax" in sys.modules:
        return None, "loading it imports jax, which tool workers must not (every worker would claim the devices)."
    return environment, None


def _fork(control: socket.socket, environment: Environment, rules: EpisodeRules, memory_bytes: int) -> int:
    descriptors, server = socket.recv_fds(control, 1, 1)[1], os.getpid()
    pid = os.fork()
    if pid == 0:
        # Nothing of the server may run in a worker, whatever happens: not its loop, not its clean-up.
        try:
            control.close()
            serve(socket.socket(fileno=descriptors[0]), environment, rules, memory_bytes, server)
        finally:
            os._exit(0)
    os.close(descriptors[0])
    return pid


def _kill(pid: int) -> None:
    # A worker that died is a zombie until it is waited for here, so its id cannot have been given to another process.
    for kill in (os.killpg, os.kill):  # its session, and the worker itself in case it had not made one yet
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
