"""Worlds of two short turns that a random policy gets by in, and some that go wrong in one way each. Imports no jax."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlagents.facts import Observation, Opening, Outcome, Task, Transcript, TurnFacts


class Saying:
    """Over after two turns, whatever was said."""

    def __init__(self, void: bool):
        self._void, self._turns = void, 0

    def step(self, text: str) -> Observation:
        self._turns += 1
        answer = [{"role": "tool", "content": str(len(text) % 10)}]
        return Observation(answer, done=self._turns == 2, turn=TurnFacts(tool_calls=1, void=self._void))

    def finish(self) -> int:
        return self._turns


@dataclass(frozen=True)
class Parity:
    """Rewards an even number of characters with ``scale``. A turn ends with the first printable character."""

    max_turns: int = 2
    scale: float = 1.0
    stop_strings: ClassVar[Sequence[str]] = tuple(map(chr, range(33, 127)))

    def opening(self, task: Task) -> Opening:
        return Opening([{"role": "user", "content": task.id}])

    def start(self, task: Task) -> Saying:
        return Saying(void=False)

    def score(self, task: Task, transcripts: Sequence[Transcript]) -> list[Outcome]:
        written = [sum(len(message["content"]) for message in transcript.messages) for transcript in transcripts]
        return [Outcome(self.scale * (count % 2 == 0)) for count in written]


class AllEqual(Parity):
    """Rewards everybody alike."""

    def score(self, task: Task, transcripts: Sequence[Transcript]) -> list[Outcome]:
        return [Outcome(1.0) for _ in transcripts]


class NothingReadable(Parity):
    """Finds neither a call nor an answer in any turn."""

    def start(self, task: Task) -> Saying:
        return Saying(void=True)


class OftenLost(Parity):
    """Cannot start the world of every second task."""

    def start(self, task: Task) -> Saying:
        if int(task.id) % 2 == 0:
            raise RuntimeError("no world")
        return super().start(task)


class OftenLong(Parity):
    """Opens every second task with more than a prompt may hold."""

    def opening(self, task: Task) -> Opening:
        return Opening([{"role": "user", "content": task.id * (40 if int(task.id) % 2 else 1)}])
