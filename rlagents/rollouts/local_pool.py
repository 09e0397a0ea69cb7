"""The pool's interface without processes: for tests, notebooks and environments that cannot hang or die."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rlagents.environments.base import Environment
from rlagents.facts import Task, Transcript, TransientToolError
from rlagents.rollouts.episodes import ENVIRONMENT_ERRORS, EpisodeRules, Episodes
from rlagents.rollouts.faults import Lost
from rlagents.rollouts.pool import Finished
from rlagents.rollouts.retries import Retries


class LocalPool:
    """Runs every request at once, in this process: no timeouts, and an environment may take the process down."""

    def __init__(
        self,
        environment: Environment,
        *,
        rules: EpisodeRules = EpisodeRules(),  # noqa: B008  frozen
        retries: Retries = Retries(),  # noqa: B008  frozen
    ):
        self._episodes, self._retries = Episodes(environment, rules), retries
        self._retried = 0
        self._lost: dict[int, Lost] = {}
        self._tickets = 0
        self._finished: list[Finished] = []

    def opening(self, task: Task) -> int:
        """See :class:`rlagents.rollouts.pool.Pool`."""
        return self._run(None, lambda: self._episodes.opening(task))

    def start(self, task: Task) -> int:
        """See :class:`rlagents.rollouts.pool.Pool`."""
        episode = self._tickets
        return self._run(episode, lambda: self._episodes.start(episode, task))

    def step(self, episode: int, text: str) -> int:
        """See :class:`rlagents.rollouts.pool.Pool`."""
        return self._run(episode, lambda: self._episodes.step(episode, text))

    def finish(self, episode: int) -> int:
        """See :class:`rlagents.rollouts.pool.Pool`."""
        return self._run(episode, lambda: self._episodes.finish(episode))

    def abandon(self, episode: int) -> None:
        """See :class:`rlagents.rollouts.pool.Pool`."""
        self._episodes.abandon(episode)

    def score(self, task: Task, transcripts: Sequence[Transcript]) -> int:
        """See :class:`rlagents.rollouts.pool.Pool`."""
        return self._run(None, lambda: self._episodes.score(task, transcripts))

    def poll(self, timeout_seconds: float = 0.0) -> list[Finished]:
        """See :class:`rlagents.rollouts.pool.Pool`; never waits."""
        del timeout_seconds
        finished, self._finished = self._finished, []
        return finished

    @property
    def counts(self) -> Counter[str]:
        """Nothing is ever repaired here, but a remote tool may have been asked again: ``calls_retried``."""
        return Counter({"calls_retried": self._retried})

    def status(self) -> str:
        """See :class:`rlagents.rollouts.pool.Pool`."""
        return f"no tool workers; {len(self._finished)} answers to be taken"

    def close(self) -> None:
        """Nothing to end."""

    def _run(self, episode: int | None, call: Callable[[], Any]) -> int:
        ticket = self._tickets
        self._tickets += 1
        value = None if episode is None else self._lost.get(episode)
        if value is None:
            try:
                value = self._patiently(call, ticket)
            except ENVIRONMENT_ERRORS as error:
                value = Lost(f"{type(error).__name__}: {error}")
                if episode is not None:
                    self._lost[episode] = value
        self._finished.append(Finished(ticket, value))
        return ticket

    def _patiently(self, call: Callable[[], Any], ticket: int) -> Any:
        """Make a call, again where a remote tool is away: nothing else happens meanwhile."""
        for attempt in range(self._retries.most):
            try:
                return call()
            except TransientToolError:
                self._retried += 1
                time.sleep(self._retries.wait_seconds(attempt, ticket))
        return call()
