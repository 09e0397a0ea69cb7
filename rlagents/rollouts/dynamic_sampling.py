"""Dynamic sampling: draw more tasks than a batch needs, keep the groups that teach something, draw again if too few.

DAPO (arXiv 2503.14476, section 3.2) draws anew until the batch is full; TAO-RL (arXiv 2606.03762) and SimpleTIR (arXiv
2509.02479) draw two or three times as many tasks at once. Here ``max_draws`` and ``over_sample`` say how much of each.
Groups are taken in stream order, never as they finish: that would prefer short conversations. But as soon as enough
informative groups have ended, nothing behind the last of them can be taken any more, whatever becomes of those before
it: it is stopped, and gives its rows to others.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from rlagents.facts import Task
from rlagents.rollouts.driver import LastNeeded, Rollout, Skipped, StreamTask
from rlagents.rollouts.faults import NothingSampledError
from rlagents.rollouts.informative import Collate, Informative, anything
from rlagents.rollouts.trajectory import Trajectory


def draw_size(prompts_per_step: int, over_sample: float) -> int:
    """Tasks of one draw: ``ceil(over_sample * prompts_per_step)``."""
    # Rounded first: 1.1 * 50 is 55.00000000000001 in floating point.
    return math.ceil(round(over_sample * prompts_per_step, 6))


class RollOut(Protocol):
    """Samples a group for every task that matters, all with the same weights (:func:`rlagents.rollouts.driver`)."""

    def __call__(self, tasks: Sequence[StreamTask], *, last_needed: LastNeeded | None) -> Rollout: ...  # noqa: D102


def sample_informative(
    take: Callable[[int], Sequence[tuple[int, Task]]],
    roll_out: RollOut,
    *,
    prompts_per_step: int,
    informative: Informative = anything,
    collate: Collate,
    over_sample: float = 1.0,
    max_draws: int = 1,
    stop_early: bool = True,
) -> Rollout:
    """Sample ``prompts_per_step`` groups, informative ones as far as ``max_draws`` draws hold them.

    Every draw takes :func:`draw_size` tasks and is sampled as far as its groups may be kept. Kept are the first
    informative groups in stream order; where there are fewer than ``prompts_per_step``, the earliest others fill up, so
    that the batch has its shape (their filter stage leaves them out again). What is sampled beyond that is thrown away.
    All of it follows from the stream's position before the call, which afterwards is behind all tasks drawn: a
    checkpoint needs nothing else.

    Args:
      take: the next so many ``(stream index, task)`` of the prompt stream, which moves on.
      roll_out: samples a draw.
      prompts_per_step: groups wanted.
      informative: says which groups are worth it.
      collate: how ``informative`` gets to see groups; holds up to :func:`draw_size` of them.
      over_sample: tasks of one draw, as a multiple of ``prompts_per_step``; 1 or more.
      max_draws: draws at most; 1 or more.
      stop_early: stop groups as soon as they cannot be kept. The groups returned are the same without it.

    Returns:
      Groups in stream order, fewer than ``prompts_per_step`` only where tasks were skipped. Skipped tasks and counts
      are those of all draws together; ``draws``, ``groups_sampled``, ``groups_kept`` and ``uninformative/<name>``, for
      each name that ``informative`` gave, are counted besides. With ``stop_early`` all these are about the tasks up to
      the last that was needed, so they too do not depend on who finishes first; ``groups_stopped`` counts the others.

    Raises:
      NothingSampledError: not a single task could be sampled.
      ValueError: ``over_sample`` or ``max_draws`` below 1.
    """
    if not over_sample >= 1.0 or max_draws < 1:
        raise ValueError(f"over_sample is {over_sample} and max_draws {max_draws}; give 1 or more of each.")
    verdicts = _Verdicts(informative, collate)
    worth: list[list[Trajectory]] = []
    others: list[list[Trajectory]] = []
    skipped: list[Skipped] = []
    counts = Counter[str]()
    while counts["draws"] < max_draws and len(worth) < prompts_per_step:
        tasks = [StreamTask(*task) for task in take(draw_size(prompts_per_step, over_sample))]
        wanted = prompts_per_step - len(worth)
        stops = stop_early and len(tasks) > wanted
        sampled = roll_out(tasks, last_needed=partial(verdicts.last_needed, wanted) if stops else None)
        skipped += sampled.skipped
        counts.update(sampled.counts)
        counts["draws"] += 1
        for group, name in zip(sampled.groups, verdicts.of(sampled.groups), strict=True):
            if name is None:
                worth.append(group)
            else:
                others.append(group)
                counts[f"uninformative/{name}"] += 1
    kept = [*worth, *others][:prompts_per_step]
    if not kept:
        raise NothingSampledError(f"all {len(skipped)} tasks were skipped; the first: {skipped[0].reason}")
    counts["groups_sampled"], counts["groups_kept"] = len(worth) + len(others), len(kept)
    return Rollout(sorted(kept, key=lambda group: group[0].stream), skipped, counts)


class _Verdicts:
    """What ``informative`` says about groups; each is judged once."""

    def __init__(self, informative: Informative, collate: Collate):
        self._informative, self._collate = informative, collate
        self._names: dict[int, str | None] = {}

    def of(self, groups: Sequence[Sequence[Trajectory]]) -> list[str | None]:
        """None for an informative group, else the name of what says it is not."""
        new = [group for group in groups if group[0].stream not in self._names]
        for group, name in zip(new, self._informative(new, self._collate), strict=True):
            self._names[group[0].stream] = name
        return [self._names[group[0].stream] for group in groups]

    def last_needed(self, wanted: int, ended: Mapping[int, list[Trajectory]]) -> int | None:
        """Stream index of the ``wanted``-th informative group of those that have ended; None if there are fewer."""
        known_not = sum(self._names.get(stream) is not None for stream in ended)
        if len(ended) - known_not < wanted:
            return None  # not worth the look
        streams = sorted(ended)
        names = self.of([ended[stream] for stream in streams])
        worth = [stream for stream, name in zip(streams, names, strict=True) if name is None]
        return worth[wanted - 1] if len(worth) >= wanted else None
