"""Keeps worker processes busy, holds them to their bounds, and brings back what dies with them. Runs in a thread."""

import pickle
import select
import socket
import time
from collections import Counter
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from rlagents.rollouts.bounds import Bounds
from rlagents.rollouts.faults import Again, Answer, Lost, ToolFault, fault_step
from rlagents.rollouts.forkserver import ForkServer, ServerDiedError
from rlagents.rollouts.handle import Handle
from rlagents.rollouts.jobs import Job, Life
from rlagents.rollouts.processes import look_at
from rlagents.rollouts.retries import Retries
from rlagents.rollouts.wire import FrameReader, FrameTooLongError

_MOST_RESTARTS = 3
"""Of the server, without a single answer in between."""


class Supervisor:
    """Owns the workers, in the thread of :meth:`run`; only ``submit`` and ``stop`` are for others.

    ``emit((ticket, value))`` is called for every request that finished, ``emit(exception)`` if ``run`` fails.
    """

    def __init__(
        self,
        server: ForkServer,
        num_workers: int,
        *,
        bounds: Bounds,
        retries: Retries,
        fault_role: str,
        emit: Callable[[Any], None],
    ):
        names = "workers_replaced", "workers_leaked", "episodes_rebuilt", "calls_retried", "servers_restarted"
        self.counts: Counter[str] = Counter(dict.fromkeys(names, 0))
        self._server, self._bounds, self._retries = server, bounds, retries
        self._fault_role, self._emit = fault_role, emit
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._wake, self._woken = socket.socketpair()
        self._lives: dict[int, Life] = {}
        self._workers = [Handle(*self._fork()) for _ in range(num_workers)]
        if (leak := bounds.leak(self._workers[0].pid)) is not None:
            raise RuntimeError(f"a tool worker that was asked for nothing {leak}; give more worker_memory_bytes.")
        self._stillborn = self._restarts = 0

    def submit(self, job: Job) -> None:
        """Queue a request."""
        self._inbox.put(job)
        self._wake.send(b".")

    def stop(self) -> None:
        """Make :meth:`run` return."""
        self._inbox.put(None)
        self._wake.send(b".")

    def doing(self) -> str:
        """What each worker is at and how many requests wait for it; asked from another thread, a moment old."""
        jobs = [(worker.running, len(worker.waiting)) for worker in tuple(self._workers)]
        return ", ".join(f"{'idle' if job is None else job.method} ({waiting} waiting)" for job, waiting in jobs)

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
        return pid, connection, FrameReader(connection, self._bounds.reply_bytes)

    def _wait(self) -> None:
        """Until something comes, a deadline or a retry is due, or it is time to look at those that are busy."""
        now = time.monotonic()
        due = [at for worker in self._workers if (at := worker.due()) is not None]
        poller = select.poll()
        for connection in (self._woken, *(worker.connection for worker in self._workers)):
            poller.register(connection, select.POLLIN)
        ready = poller.poll(1000 * max(0.0, min(due) - now) if due else None)
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
            worker = min(self._workers, key=lambda worker: len(worker.episodes))
            worker.episodes.add(job.episode)
            self._lives[job.episode] = Life(job.arguments[1], job.timeout_seconds)
        else:
            worker = next(worker for worker in self._workers if job.episode in worker.episodes)
        if job.method == "abandon":
            # What it still asked for would keep others waiting; nobody wants the answers.
            worker.waiting.drop_episode(job.episode)
        worker.waiting.append(job)

    def _dispatch(self, worker: Handle) -> None:
        while worker.running is None and (job := worker.waiting.take()) is not None:
            life = None if job.episode is None else self._lives[job.episode]
            if life is not None and life.lost is not None and job.method != "abandon":
                self._settle(worker, job, Lost(life.lost))
                continue
            try:
                worker.ask(job)
            except OSError:
                self._replace(worker, ToolFault.DIED, "the tool's process died")

    def _collect(self, worker: Handle) -> None:
        had_begun = worker.reader.begun
        try:
            frame = worker.reader.read()
            answer = None if frame is None else pickle.loads(frame)
        except EOFError:
            return self._replace(worker, ToolFault.DIED, "the tool's process died")
        except FrameTooLongError:
            return self._replace(worker, ToolFault.FLOODED, "the tool answered too much")
        except Exception:
            return self._replace(worker, ToolFault.MALFORMED, "the tool's answer cannot be read")
        job = worker.running
        if frame is not None or (job is None and worker.reader.begun):
            if job is None or not isinstance(answer, Answer) or not job.is_answered_by(answer.value):
                return self._replace(worker, ToolFault.MALFORMED, "the tool's answer cannot be read")
            return self._answered(worker, job, answer)
        if job is not None:
            if worker.reader.begun and not had_begun:
                worker.answers()
            self._hold_to_bounds(worker, job)
        return None

    def _hold_to_bounds(self, worker: Handle, job: Job) -> None:
        """A worker that is busy, and has been for too long or with too much memory, is replaced."""
        now = time.monotonic()
        if now < min(worker.next_look, worker.deadline):
            return
        worker.looked_at()
        look = look_at(worker.pid)
        if look.dead and not worker.reader.begun:  # a child of it may keep the connection open
            self._replace(worker, ToolFault.DIED, "the tool's process died")
        elif look.resident_bytes > self._bounds.memory_bytes:
            detail = f"the tool used more memory than the {self._bounds.memory_bytes} bytes that are allowed"
            self._replace(worker, ToolFault.OUT_OF_MEMORY, detail)
        elif now >= worker.deadline:
            self._replace(worker, ToolFault.TIMED_OUT, f"the tool timed out after {job.timeout_seconds:g} s")

    def _answered(self, worker: Handle, job: Job, answer: Answer) -> None:
        """Take an answer; a worker that is not as it should be is replaced before anything else is asked of it."""
        worker.running, self._stillborn, self._restarts = None, 0, 0
        if isinstance(answer.value, Again) and job.attempts < self._retries.most:
            self.counts["calls_retried"] += 1
            job.not_before = time.monotonic() + self._retries.wait_seconds(job.attempts, job.number)
            job.attempts += 1
            worker.waiting.put_first([job])
        elif isinstance(answer.value, Again):
            asked = f"asked {job.attempts + 1} times" if job.attempts else "asked once"
            self._settle(worker, job, Lost(f"{job.method}: a remote tool is away ({asked}): {answer.value.reason}"))
        else:
            self._settle(worker, job, answer.value)
        spoiled = "wrote more than its answer" if worker.reader.begun else answer.spoiled
        leak = spoiled or self._bounds.leak(worker.pid)
        if leak is None:
            return
        if job.method == "rebuild" and job.episode is not None:
            # Whatever a replay does to its worker it would do again, for ever.
            self._lives[job.episode].lost = f"rebuild: the tool's process {leak}"
        self.counts["workers_leaked"] += 1
        self._renew(worker)

    def _settle(self, worker: Handle, job: Job, value: Any) -> None:
        """A request is answered: remember what a rebuild needs, and tell who waits."""
        self._remember(worker, job, value)
        self._tell(job, value)

    def _remember(self, worker: Handle, job: Job, value: Any) -> None:
        if job.episode is not None:
            self._lives[job.episode].settle(job, value)
            if job.method in ("finish", "abandon"):
                worker.episodes.remove(job.episode)
                del self._lives[job.episode]

    def _tell(self, job: Job, value: Any) -> None:
        if job.ticket is not None:
            self._emit((job.ticket, value))

    def _replace(self, worker: Handle, fault: ToolFault, detail: str) -> None:
        """Renew a worker that failed, and answer the request that did it."""
        job, worker.running = worker.running, None
        # Workers that die before they are asked for anything would be replaced for ever.
        self._stillborn += job is None
        if self._stillborn > 3 * len(self._workers):
            raise RuntimeError("tool workers die as soon as they are started; does worker_memory_bytes suffice?")
        if job is None:
            self._renew(worker)
        elif not job.interrupted and not self._server.alive():
            # It took its workers along, and no tool is to blame, unless it happens again: what was asked is asked anew.
            job.interrupted = True
            worker.waiting.put_first([job])
            self._renew(worker)
        elif job.method == "step":
            self._renew(worker)  # without the step
            self._tell(job, fault_step(fault, detail, self._fault_role))
        else:
            lost = Lost(f"{job.method}: {detail}")
            self._remember(worker, job, lost)
            self._renew(worker)
            self._tell(job, lost)

    def _renew(self, worker: Handle) -> None:
        """Kill a worker, start another in its place, rebuild its episodes before anything else."""
        self.counts["workers_replaced"] += 1
        worker.connection.close()
        try:
            self._server.kill(worker.pid)
            worker.pid, worker.connection, worker.reader = self._fork()
        except ServerDiedError as error:
            self._restarts += 1
            if self._restarts > _MOST_RESTARTS:
                raise RuntimeError(f"the server of tool workers died {self._restarts} times in a row.") from error
            self.counts["servers_restarted"] += 1
            self._server.restart()
            worker.pid, worker.connection, worker.reader = self._fork()
        worker.waiting.drop_rebuilds()
        lives = [(episode, self._lives[episode]) for episode in sorted(worker.episodes)]
        rebuilds = [life.rebuilding(episode) for episode, life in lives if life.started and life.lost is None]
        self.counts["episodes_rebuilt"] += len(rebuilds)
        worker.waiting.put_first(rebuilds)
