"""Keeps worker processes busy, holds them to their timeouts, and brings back what dies with them. Runs in a thread."""

import pickle
import select
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from rlagents.facts import Task
from rlagents.rollouts.faults import Lost, Stepped, ToolFault, fault_step
from rlagents.rollouts.forkserver import ForkServer
from rlagents.rollouts.wire import FrameReader, FrameTooLongError, send_frame

_TRANSFER_SECONDS = 30.0


@dataclass
class Job:
    """A request: ``method`` of :class:`rlagents.rollouts.episodes.Episodes`. ``ticket`` None: nobody waits for it.

    Made in the thread that asks, so that arguments which cannot be pickled raise there.
    """

    ticket: int | None
    method: str
    arguments: tuple
    episode: int | None
    timeout_seconds: float

    def __post_init__(self):
        self.payload = pickle.dumps((self.method, self.arguments))


@dataclass
class _Life:
    """What it takes to rebuild an episode."""

    task: Task
    worker: "_Worker"
    start_timeout_seconds: float
    step_timeout_seconds: float = 0.0
    started: bool = False
    history: list[tuple[str, Stepped]] = field(default_factory=list)
    lost: str | None = None


@dataclass(eq=False)
class _Worker:
    pid: int
    connection: socket.socket
    reader: FrameReader
    running: Job | None = None
    deadline: float = 0.0
    waiting: deque[Job] = field(default_factory=deque)
    num_episodes: int = 0


class Supervisor:
    """Owns the workers, in the thread of :meth:`run`; only ``submit`` and ``stop`` are for others.

    ``emit((ticket, value))`` is called for every request that finished, ``emit(exception)`` if ``run`` fails.
    """

    def __init__(
        self, server: ForkServer, num_workers: int, max_reply_bytes: int, fault_role: str, emit: Callable[[Any], None]
    ):
        self.counts = Counter({"workers_replaced": 0, "episodes_rebuilt": 0})
        self._server, self._max_reply_bytes, self._fault_role, self._emit = server, max_reply_bytes, fault_role, emit
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._wake, self._woken = socket.socketpair()
        self._lives: dict[int, _Life] = {}
        self._workers = [_Worker(*self._fork()) for _ in range(num_workers)]
        self._stillborn = 0

    def submit(self, job: Job) -> None:
        """Queue a request."""
        self._inbox.put(job)
        self._wake.send(b".")

    def stop(self) -> None:
        """Make :meth:`run` return."""
        self._inbox.put(None)
        self._wake.send(b".")

    def run(self) -> None:
        """Until :meth:`stop`."""
        try:
            while self._accept():
                for worker in self._workers:
                    self._collect(worker)
                for worker in self._workers:
                    self._dispatch(worker)
                self._wait()
        except BaseException as error:
            self._emit(error)
        for worker in self._workers:
            worker.connection.close()

    def _fork(self) -> tuple[int, socket.socket, FrameReader]:
        pid, connection = self._server.fork()
        connection.setblocking(False)
        return pid, connection, FrameReader(connection, self._max_reply_bytes)

    def _wait(self) -> None:
        deadlines = [worker.deadline for worker in self._workers if worker.running]
        timeout = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
        poller = select.poll()
        for connection in (self._woken, *(worker.connection for worker in self._workers)):
            poller.register(connection, select.POLLIN)
        ready = poller.poll(None if timeout is None else 1000 * timeout)
        if self._woken.fileno() in dict(ready):
            self._woken.recv(1 << 16)

    def _accept(self) -> bool:
        """Queue what was submitted; False to stop."""
        while True:
            try:
                job = self._inbox.get_nowait()
            except Empty:
                return True
            if job is None:
                return False
            self._place(job)

    def _place(self, job: Job) -> None:
        if job.episode is None:
            worker = min(self._workers, key=lambda worker: len(worker.waiting) + bool(worker.running))
        elif job.method == "start":
            worker = min(self._workers, key=lambda worker: worker.num_episodes)
            worker.num_episodes += 1
            self._lives[job.episode] = _Life(job.arguments[1], worker, job.timeout_seconds)
        else:
            worker = self._lives[job.episode].worker
        if job.method == "abandon":
            # What it still asked for would keep others waiting; nobody wants the answers.
            worker.waiting = deque(other for other in worker.waiting if other.episode != job.episode)
        worker.waiting.append(job)

    def _dispatch(self, worker: _Worker) -> None:
        while worker.waiting and worker.running is None:
            job = worker.waiting.popleft()
            life = None if job.episode is None else self._lives[job.episode]
            if life is not None and life.lost is not None:
                self._settle(worker, job, Lost(life.lost))
                continue
            worker.running, worker.deadline = job, time.monotonic() + job.timeout_seconds
            try:
                worker.connection.settimeout(_TRANSFER_SECONDS)
                send_frame(worker.connection, job.payload)
                worker.connection.setblocking(False)
            except OSError:
                self._replace(worker, ToolFault.DIED, "the tool's process died")

    def _collect(self, worker: _Worker) -> None:
        had_begun = worker.reader.begun
        try:
            frame = worker.reader.read()
            value = None if frame is None else pickle.loads(frame)
        except EOFError:
            return self._replace(worker, ToolFault.DIED, "the tool's process died")
        except FrameTooLongError:
            return self._replace(worker, ToolFault.FLOODED, "the tool answered too much")
        except Exception:
            return self._replace(worker, ToolFault.MALFORMED, "the tool's answer cannot be read")
        job = worker.running
        if job is None:
            return None
        if frame is not None:
            worker.running, self._stillborn = None, 0
            return self._settle(worker, job, value)
        if worker.reader.begun and not had_begun:
            worker.deadline = time.monotonic() + _TRANSFER_SECONDS  # it is done, and its answer under way
        if time.monotonic() >= worker.deadline:
            self._replace(worker, ToolFault.TIMED_OUT, f"the tool timed out after {job.timeout_seconds:g} s")
        return None

    def _settle(self, worker: _Worker, job: Job, value: Any) -> None:
        """A request is answered: remember what a rebuild needs, and tell who waits."""
        if job.episode is not None:
            life = self._lives[job.episode]
            if isinstance(value, Lost):
                life.lost = value.reason
            elif job.method == "step":
                life.history.append((job.arguments[1], value))
                life.step_timeout_seconds = job.timeout_seconds
            elif job.method == "start":
                life.started = True
            if job.method in ("finish", "abandon"):
                worker.num_episodes -= 1
                del self._lives[job.episode]
        if job.ticket is not None:
            self._emit((job.ticket, value))

    def _replace(self, worker: _Worker, fault: ToolFault, detail: str) -> None:
        """Kill a worker, start another in its place, answer the request that did it, rebuild the episodes."""
        self.counts["workers_replaced"] += 1
        worker.connection.close()
        self._server.kill(worker.pid)
        worker.pid, worker.connection, worker.reader = self._fork()
        job, worker.running = worker.running, None
        # Workers that die before they are asked for anything would be replaced for ever.
        self._stillborn += job is None
        if self._stillborn > 3 * len(self._workers):
            raise RuntimeError("tool workers die as soon as they are started; does worker_memory_bytes suffice?")
        if job is not None and job.method == "step":
            self._emit((job.ticket, fault_step(fault, detail, self._fault_role)))
        elif job is not None:
            self._settle(worker, job, Lost(f"{job.method}: {detail}"))
        others = [other for other in worker.waiting if other.method != "rebuild"]
        worker.waiting = deque([*self._rebuilds(worker), *others])

    def _rebuilds(self, worker: _Worker) -> list[Job]:
        jobs = []
        for episode, life in self._lives.items():
            if life.worker is worker and life.started and life.lost is None:
                self.counts["episodes_rebuilt"] += 1
                timeout = life.start_timeout_seconds + life.step_timeout_seconds * len(life.history)
                jobs.append(Job(None, "rebuild", (episode, life.task, life.history), episode, timeout))
        return jobs
