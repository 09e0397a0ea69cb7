"""Which task comes when: a pure function of a seed and a position.

A stream has one number for a state, the position of the next prompt in it (its *stream index*). Nothing is carried
along, so a stream stopped anywhere continues exactly there, and sampler keys may be derived from the index.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

T = TypeVar("T", covariant=True)

MAX_SEED = 2**32


class TaskSet(Protocol[T]):
    """Random access to tasks; a task set that also has a length is finite."""

    def __getitem__(self, index: int, /) -> T:
        """Return task ``index``."""
        ...


class StreamExhausted(RuntimeError):  # noqa: N818
    """A stream with a last epoch was asked for more than it has."""


class PromptStream(Generic[T]):
    """Tasks in order of their stream index, from ``position`` on."""

    def __init__(self, task_at: Callable[[int], T], *, length: int | None = None, position: int = 0):
        """Stream ``task_at(0), task_at(1), ...`` up to ``length`` (None: without end), from ``position`` on.

        Raises ValueError if ``position`` is negative or beyond ``length``.
        """
        if position < 0 or (length is not None and position > length):
            raise ValueError(f"position {position} is not in a stream of {length} prompts; is it another one's?")
        self._task_at = task_at
        self.length = length
        self.position = position

    def __getitem__(self, index: int) -> T:
        """Return the task at a stream index. Raises IndexError outside the stream."""
        if index < 0 or (self.length is not None and index >= self.length):
            raise IndexError(f"stream index {index} is outside a stream of {self.length} prompts")
        return self._task_at(index)

    def take(self, count: int) -> list[tuple[int, T]]:
        """Return the next ``count`` ``(stream index, task)`` and move on.

        Raises StreamExhausted, and does not move, where fewer are left: a short batch would be another shape, and an
        empty one a step that learns nothing.
        """
        end = self.position + count
        if self.length is not None and end > self.length:
            raise StreamExhausted(
                f"asked for {count} prompts at position {self.position}, but the stream ends at {self.length}; give it "
                "more epochs or take fewer steps"
            )
        taken = [(index, self._task_at(index)) for index in range(self.position, end)]
        self.position = end
        return taken


def shuffled(tasks: Sequence[T], *, seed: int, epochs: int | None = None, position: int = 0) -> PromptStream[T]:
    """Stream a finite task set epoch after epoch, each in an order of its own; without end unless ``epochs`` is given.

    Stream index ``i`` is in epoch ``i // len(tasks)``; every task comes exactly once an epoch. Raises ValueError for an
    empty task set, a seed outside ``[0, 2**32)`` or fewer than one epoch.
    """
    if not 0 <= seed < MAX_SEED:
        raise ValueError(f"the seed of a stream must be in [0, 2**32), found {seed}")
    if epochs is not None and epochs < 1:
        raise ValueError(f"a stream has at least one epoch, found epochs={epochs}")
    size = len(tasks)
    if size == 0:
        raise ValueError("the task set is empty: there is nothing to stream")

    @functools.lru_cache(maxsize=2)  # A batch crosses at most one boundary at a time.
    def order(epoch: int) -> np.ndarray:
        return epoch_order(size, seed, epoch)

    def task_at(index: int) -> T:
        epoch, place = divmod(index, size)
        return tasks[int(order(epoch)[place])]

    return PromptStream(task_at, length=None if epochs is None else size * epochs, position=position)


def epoch_order(size: int, seed: int, epoch: int) -> np.ndarray:
    """Return a permutation of ``range(size)``, uniform, and independent for every pair of seed and epoch.

    ``RandomState`` because its stream is frozen across NumPy releases. (Index shuffles by a few rounds of a block
    cipher, seeded with ``seed + epoch``, would give seed 1 the epochs of seed 0 one later, and leave about one epoch in
    150 in its first order.)
    """
    generator = np.random.MT19937(np.random.SeedSequence((seed, epoch)))
    return np.random.RandomState(generator).permutation(size)


def endless(tasks: TaskSet[T], *, position: int = 0) -> PromptStream[T]:
    """Stream a task set without end (procedurally generated: every index is a new task) in its own order."""
    return PromptStream(lambda index: tasks[index], position=position)
