"""What a rollout driver needs of a world: an opening, one episode per trajectory, a score for the whole group."""

from collections.abc import Sequence
from typing import Any, Protocol

from rlagents.facts import Observation, Opening, Outcome, Task, Transcript


class Episode(Protocol):
    """One trajectory's world. It lives in a worker process and shares no state with any other episode."""

    def step(self, text: str) -> Observation:
        """Answer one assistant turn. ``text`` is the turn up to its stop, special tokens removed; any string is lawful.

        Raises nothing for what a model may write: a malformed call, or a tool that raises, is an observation.
        """
        ...

    def finish(self) -> Any:
        """A picklable record for :meth:`Environment.score`; asked for once, also where the trajectory was cut short."""
        ...


class Environment(Protocol):
    """A family of tasks. Picklable: every worker process holds its own copy."""

    @property
    def stop_strings(self) -> Sequence[str]:
        """Strings that end an assistant turn besides the model's own end token."""
        ...

    @property
    def max_turns(self) -> int:
        """Assistant turns after which the driver cuts a trajectory short."""
        ...

    def opening(self, task: Task) -> Opening:
        """The messages before the first assistant turn: the same for every member of a group."""
        ...

    def start(self, task: Task) -> Episode:
        """A fresh world for one trajectory."""
        ...

    def score(self, task: Task, transcripts: Sequence[Transcript]) -> list[Outcome]:
        """One outcome per member of the group. A transcript without a record (its worker died) scores as a failure."""
        ...
