"""Dynamic sampling: draw more tasks than a batch needs, keep the groups that teach something, draw again if too few.

DAPO (arXiv 2503.14476, section 3.2) draws anew until the batch is full; TAO-RL (arXiv 2606.03762) and SimpleTIR (arXiv
2509.02479) draw two or three times as many tasks at once. Here ``max_draws`` and ``over_sample`` say how much of each.
Groups are taken in stream order, never as they finish: that would prefer short conversations.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence

from rlagents.facts import Task
from rlagents.rollouts.driver import Rollout, Skipped, StreamTask
from rlagents.rollouts.informative import Collate, Informative, anything
from rlagents.rollouts.trajectory import Trajectory


def draw_size(prompts_per_step: int, over_sample: float) -> int:
    """Tasks of one draw: ``ceil(over_sample * prompts_per_step)``."""
    # Rounded first: 1.1 * 50 is 55.00000000000001 in floating point.
    return math.ceil(round(over_sample * prompts_per_step, 6))


def sample_informative(
    take: Callable[[int], Sequence[tuple[int, Task]]],
    roll_out: Callable[[Sequence[StreamTask]], Rollout],
    *,
    prompts_per_step: int,
    informative: Informative = anything,
    collate: Collate,
    over_sample: float = 1.0,
    max_draws: int = 1,
) -> Rollout:
    """Sample ``prompts_per_step`` groups, informative ones as far as ``max_draws`` draws hold them.

    Every draw takes :func:`draw_size` tasks and is sampled whole. Kept are the first informative groups in stream
    order; where there are fewer than ``prompts_per_step``, the earliest others fill up, so that the batch has its shape
    (their filter stage leaves them out again). What is sampled beyond that is thrown away. All of it follows from the
    stream's position before the call, which afterwards is behind all tasks drawn: a checkpoint needs nothing else.

    Args:
      take: the next so many ``(stream index, task)`` of the prompt stream, which moves on.
      roll_out: samples a group for every task, all with the same weights.
      prompts_per_step: groups wanted.
      informative: says which groups are worth it.
      collate: how ``informative`` gets to see groups; holds up to :func:`draw_size` of them.
      over_sample: tasks of one draw, as a multiple of ``prompts_per_step``; 1 or more.
      max_draws: draws at most; 1 or more.

    Returns:
      Groups in stream order, fewer than ``prompts_per_step`` only where tasks were skipped. Skipped tasks and counts
      are those of all draws together; ``draws``, ``groups_sampled``, ``groups_kept`` and ``uninformative/<name>``, for
      each name that ``informative`` gave, are counted besides.

    Raises:
      ValueError: ``over_sample`` or ``max_draws`` below 1; not a single task could be sampled.
    """
    if not over_sample >= 1.0 or max_draws < 1:
        raise ValueError(f"over_sample is {over_sample} and max_draws {max_draws}; give 1 or more of each.")
    worth: list[list[Trajectory]] = []
    others: list[list[Trajectory]] = []
    skipped: list[Skipped] = []
    counts = Counter[str]()
    while counts["draws"] < max_draws and len(worth) < prompts_per_step:
        tasks = [StreamTask(*task) for task in take(draw_size(prompts_per_step, over_sample))]
        sampled = roll_out(tasks)
        skipped += sampled.skipped
        counts.update(sampled.counts)
        counts["draws"] += 1
        for group, name in zip(sampled.groups, informative(sampled.groups, collate), strict=True):
            if name is None:
                worth.append(group)
            else:
                others.append(group)
                counts[f"uninformative/{name}"] += 1
    kept = [*worth, *others][:prompts_per_step]
    if not kept:
        raise ValueError(f"all {len(skipped)} tasks were skipped; the first: {skipped[0].reason}")
    counts["groups_sampled"], counts["groups_kept"] = len(worth) + len(others), len(kept)
    return Rollout(sorted(kept, key=lambda group: group[0].stream), skipped, counts)
