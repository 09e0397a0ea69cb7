"""Requests to a worker, and what it takes to bring back the episodes that lived there."""

import pickle
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from rlagents.facts import Opening, Task
from rlagents.rollouts.faults import Again, Lost, Stepped

_ANSWERS = {"opening": Opening, "step": Stepped, "score": list, "finish": object}
"""What each method answers with; all others with None."""


@dataclass(eq=False)
class Job:
    """A request: ``method`` of :class:`rlagents.rollouts.episodes.Episodes`. ``ticket`` None: nobody waits for it.

    Made in the thread that asks, so that arguments which cannot be pickled raise there.

    Attributes:
      attempts: times that it was made while a remote tool was away.
      interrupted: whether it was under way when the server of workers died.
      not_before: monotonic time before which it is not made again.
    """

    ticket: int | None
    method: str
    arguments: tuple
    episode: int | None
    timeout_seconds: float
    attempts: int = 0
    not_before: float = 0.0
    interrupted: bool = False

    def __post_init__(self):
        self.payload = pickle.dumps((self.method, self.arguments))

    @property
    def number(self) -> int:
        """Of the episode, or of the ticket where it is about none."""
        return self.ticket or 0 if self.episode is None else self.episode

    def is_answered_by(self, value: Any) -> bool:
        """Whether ``value`` is of a kind that this request is answered with."""
        return isinstance(value, (_ANSWERS.get(self.method, NoneType), Lost, Again))


@dataclass
class Life:
    """An episode as it would have to be rebuilt."""

    task: Task
    start_timeout_seconds: float
    step_timeout_seconds: float = 0.0
    started: bool = False
    history: list[tuple[str, Stepped]] = field(default_factory=list)
    lost: str | None = None

    def rebuilding(self, episode: int) -> Job:
        """The request that rebuilds it."""
        timeout = self.start_timeout_seconds + self.step_timeout_seconds * len(self.history)
        return Job(None, "rebuild", (episode, self.task, self.history), episode, timeout)

    def settle(self, job: Job, value: Any) -> None:
        """Take note of the answer to a request about it."""
        if isinstance(value, Lost):
            self.lost = value.reason
        elif job.method == "step":
            self.history.append((job.arguments[1], value))
            self.step_timeout_seconds = job.timeout_seconds
        elif job.method == "start":
            self.started = True


class Waiting:
    """Requests that wait for one worker. Those about one episode keep their order, even where one has to wait."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()

    def __len__(self) -> int:
        return len(self._jobs)

    def append(self, job: Job) -> None:
        """Put last."""
        self._jobs.append(job)

    def put_first(self, jobs: Iterable[Job]) -> None:
        """Put before all others, in order."""
        self._jobs.extendleft(reversed(list(jobs)))

    def drop_episode(self, episode: int | None) -> None:
        """Leave out all about an episode."""
        self._jobs = deque(job for job in self._jobs if job.episode != episode)

    def drop_rebuilds(self) -> None:
        """Leave out what was to rebuild episodes."""
        self._jobs = deque(job for job in self._jobs if job.method != "rebuild")

    def take(self) -> Job | None:
        """The first request that may be made now."""
        now = time.monotonic()
        job = next((job for job in self._foremost() if job.not_before <= now), None)
        if job is not None:
            self._jobs.remove(job)
        return job

    def next_time(self) -> float | None:
        """Monotonic time from which one may be made; None where none waits."""
        return min((job.not_before for job in self._foremost()), default=None)

    def _foremost(self) -> Iterator[Job]:
        """Requests that wait for no other of their episode."""
        seen = set()
        for job in self._jobs:
            if job.episode not in seen:
                yield job
            if job.episode is not None:
                seen.add(job.episode)
