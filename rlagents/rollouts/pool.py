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
from rlagents.rollouts.episodes import EpisodeRules
from rlagents.rollouts.forkserver import ForkServer
from rlagents.rollouts.supervisor import Job, Supervisor


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
        """What the pool had to repair so far: ``workers_replaced``, ``episodes_rebuilt``."""
        ...

    def close(self) -> None:
        """End all episodes and processes."""
        ...


class ProcessPool:
    """Workers forked by a server that never saw jax; episodes stay with their worker.

    A worker that exceeds a timeout, dies or floods is killed and replaced. The episodes that lived there are rebuilt by
    replaying their histories, so environments must be deterministic; the step that did it is answered with an error
    observation and leaves no trace in its episode.

    Args:
      environment: picklable, its class importable; every worker gets a copy.
      num_workers: processes; one runs one request at a time.
      step_timeout_seconds: time for one step.
      call_timeout_seconds: time for any other request (opening, start, finish, score).
      rules: limits on what the environment answers.
      worker_memory_bytes: address space of one worker; beyond it, allocations raise ``MemoryError`` there.
      max_reply_bytes: an answer that is longer is a flood.

    Raises:
      RuntimeError: the environment cannot be loaded in a worker, or loading it imports jax; from any method: the
        server of workers died.
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
    ):
        if num_workers < 1:
            raise ValueError(f"num_workers is {num_workers}; give at least 1.")
        self._step_timeout_seconds, self._call_timeout_seconds = step_timeout_seconds, call_timeout_seconds
        self._tickets = 0
        self._finished: SimpleQueue[tuple[int, Any] | BaseException] = SimpleQueue()
        self._server = ForkServer(environment, rules, worker_memory_bytes)
        self._supervisor = Supervisor(self._server, num_workers, max_reply_bytes, rules.fault_role, self._finished.put)
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
