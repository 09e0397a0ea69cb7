"""Where episodes live while the sampler decodes: the interface, and the pool of worker processes.

Requests return a ticket at once; :meth:`Pool.poll` hands back what has finished since, in any order. Nothing in a pool
raises on an environment's account: see :mod:`rlagents.rollouts.faults`.
"""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol

from rlagents.environments.base import Environment
from rlagents.facts import Task, Transcript
from rlagents.rollouts.bounds import Bounds
from rlagents.rollouts.episodes import EpisodeRules
from rlagents.rollouts.forkserver import ForkServer
from rlagents.rollouts.jobs import Job
from rlagents.rollouts.retries import Retries
from rlagents.rollouts.supervisor import Supervisor


class Finished(NamedTuple):
    """``value`` is what the request asked for, or :class:`rlagents.rollouts.faults.Lost`."""

    ticket: int
    value: Any


class Pool(Protocol):
    """Environment calls, asynchronously. All methods but ``poll`` and ``close`` return at once."""

    def opening(self, task: Task) -> int:
        """Ask for ``environment.opening(task)`` (:class:`rlagents.facts.Opening`)."""
        ...

    def start(self, task: Task) -> int:
        """Begin an episode; the ticket is also its number. Finishes with None."""
        ...

    def step(self, episode: int, text: str) -> int:
        """One assistant turn; finishes with :class:`rlagents.rollouts.faults.Stepped`. Need not wait for ``start``."""
        ...

    def finish(self, episode: int) -> int:
        """End an episode; finishes with its record."""
        ...

    def abandon(self, episode: int) -> None:
        """End an episode without asking for its record.

        Requests about it that have not begun need not be run, nor finish.
        """
        ...

    def score(self, task: Task, transcripts: Sequence[Transcript]) -> int:
        """Score a group; finishes with one :class:`rlagents.facts.Outcome` a transcript."""
        ...

    def poll(self, timeout_seconds: float = 0.0) -> list[Finished]:
        """What has finished since the last call; waits up to ``timeout_seconds`` if nothing has."""
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """What the pool had to repair so far.

        ``workers_replaced``, of these ``workers_leaked`` (they held too much when they had answered); also
        ``episodes_rebuilt``, ``calls_retried`` and ``servers_restarted``.
        """
        ...

    def status(self) -> str:
        """What the pool is doing, in a line, for whoever looks why nothing goes on."""
        ...

    def close(self) -> None:
        """End all episodes and processes."""
        ...


class ProcessPool:
    """Workers forked by a server that never saw jax; episodes stay with their worker.

    A worker that exceeds a timeout or its memory, dies or floods is killed, with all that its tools have started, and
    replaced. The episodes that lived there are rebuilt by replaying their histories, so environments must be
    deterministic; the step that did it is answered with an error observation and leaves no trace in its episode. A
    worker that has answered and holds more than half of its memory, or of the files it may open, leaks: it is replaced
    too, and nobody else notices. Should the server die, another is started and what was asked is asked again.

    Args:
      environment: picklable, its class importable; every worker gets a copy.
      num_workers: processes; one runs one request at a time.
      step_timeout_seconds: time for one step.
      call_timeout_seconds: time for any other request (opening, start, finish, score).
      rules: limits on what the environment answers.
      worker_memory_bytes: address space of one worker; beyond it, allocations raise ``MemoryError`` there. Also the
        resident memory of a worker and its children together; beyond it, they are killed.
      max_reply_bytes: an answer that is longer is a flood.
      max_retries: times that a call is made again which raised :class:`rlagents.facts.TransientToolError`; after that
        its trajectory is lost.
      retry_seconds: wait before the first of them; twice as long before each later one.

    Raises:
      RuntimeError: the environment cannot be loaded in a worker, loading it imports jax, or it holds more than half
        of ``worker_memory_bytes`` by itself; from any method: workers, or their server, die again and again.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        num_workers: int,
        step_timeout_seconds: float = 5.0,
        call_timeout_seconds: float = 60.0,
        rules: EpisodeRules = EpisodeRules(),  # noqa: B008  frozen
        worker_memory_bytes: int = 8 << 30,
        max_reply_bytes: int = 256 << 20,
        max_retries: int = 3,
        retry_seconds: float = 1.0,
    ):
        if num_workers < 1:
            raise ValueError(f"num_workers is {num_workers}; give at least 1.")
        self._step_timeout_seconds, self._call_timeout_seconds = step_timeout_seconds, call_timeout_seconds
        self._tickets = 0
        self._finished: SimpleQueue[tuple[int, Any] | BaseException] = SimpleQueue()
        self._server = ForkServer(environment, rules, worker_memory_bytes)
        bounds = Bounds(memory_bytes=worker_memory_bytes, reply_bytes=max_reply_bytes)
        try:
            self._supervisor = Supervisor(
                self._server,
                num_workers,
                bounds=bounds,
                retries=Retries(max_retries, retry_seconds),
                fault_role=rules.fault_role,
                emit=self._finished.put,
            )
        except BaseException:
            self._server.close()
            raise
        # A thread of its own: workers get their next request, and are held to their timeouts, while the caller decodes.
        self._thread = threading.Thread(target=self._supervisor.run, name="tool workers", daemon=True)
        self._thread.start()

    def opening(self, task: Task) -> int:
        """See :class:`Pool`."""
        return self._submit("opening", (task,), None, self._call_timeout_seconds)

    def start(self, task: Task) -> int:
        """See :class:`Pool`."""
        episode = self._tickets
        return self._submit("start", (episode, task), episode, self._call_timeout_seconds)

    def step(self, episode: int, text: str) -> int:
        """See :class:`Pool`."""
        return self._submit("step", (episode, text), episode, self._step_timeout_seconds)

    def finish(self, episode: int) -> int:
        """See :class:`Pool`."""
        return self._submit("finish", (episode,), episode, self._call_timeout_seconds)

    def abandon(self, episode: int) -> None:
        """See :class:`Pool`."""
        self._supervisor.submit(Job(None, "abandon", (episode,), episode, self._call_timeout_seconds))

    def score(self, task: Task, transcripts: Sequence[Transcript]) -> int:
        """See :class:`Pool`."""
        return self._submit("score", (task, list(transcripts)), None, self._call_timeout_seconds)

    def poll(self, timeout_seconds: float = 0.0) -> list[Finished]:
        """See :class:`Pool`."""
        finished = []
        try:
            finished.append(self._finished.get(timeout=max(timeout_seconds, 1e-6)))
            while True:
                finished.append(self._finished.get_nowait())
        except Empty:
            pass
        for item in finished:
            if isinstance(item, BaseException):
                raise RuntimeError("the supervisor of tool workers failed.") from item
        return [Finished(*item) for item in finished]

    @property
    def counts(self) -> Counter[str]:
        """See :class:`Pool`."""
        return Counter(self._supervisor.counts)

    def status(self) -> str:
        """See :class:`Pool`."""
        repaired = ", ".join(f"{name} {count}" for name, count in self.counts.items() if count)
        return f"tool workers: {self._supervisor.doing()}; {repaired or 'nothing had to be repaired'}"

    def close(self) -> None:
        """See :class:`Pool`."""
        self._supervisor.stop()
        self._thread.join()
        self._server.close()

    def __enter__(self) -> "ProcessPool":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _submit(self, method: str, arguments: tuple, episode: int | None, timeout_seconds: float) -> int:
        ticket = self._tickets
        self._tickets += 1
        self._supervisor.submit(Job(ticket, method, arguments, episode, timeout_seconds))
        return ticket
