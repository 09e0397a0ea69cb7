"""Success on held-out tasks: the same rollout loop, another domain of random numbers, nothing learned."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rlagents.facts import Task
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.conditions import MemberMessages, same_for_all
from rlagents.rollouts.driver import Rollout, StreamTask, rollout
from rlagents.rollouts.faults import NothingSampledError
from rlagents.rollouts.members import Limits, TurnSampler
from rlagents.rollouts.pool import Pool
from rlagents.rollouts.trajectory import Trajectory
from rlagents.sampling.keys import Domain


@dataclass(frozen=True)
class Evaluation:
    """Mean reward over tasks of the mean over their samples.

    Attributes:
      success: over all tasks that were sampled.
      by_category: the same for each category.
      named: means of the outcome's named facts, over trajectories.
      num_tasks: tasks counted; skipped and lost ones are not.
      samples_per_task: trajectories of each.
      skipped: tasks left out, by reason.
      groups: all trajectories.
    """

    success: float
    by_category: Mapping[str, float]
    named: Mapping[str, float]
    num_tasks: int
    samples_per_task: int
    skipped: Mapping[str, str]
    groups: Sequence[Sequence[Trajectory]]

    def values(self) -> dict[str, float]:
        """For a log: plain numbers."""
        return {
            "success": self.success,
            **{f"success/{name}": value for name, value in self.by_category.items()},
            **{f"named/{name}": value for name, value in self.named.items()},
            "tasks": self.num_tasks,
            "samples_per_task": self.samples_per_task,
            "tasks_skipped": len(self.skipped),
        }

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {value:.1%}" for name, value in self.by_category.items())
        skipped = f"; {len(self.skipped)} skipped" if self.skipped else ""
        return f"{self.success:.1%} of {self.num_tasks} tasks x {self.samples_per_task} samples ({parts}{skipped})"


def evaluate(
    tasks: Sequence[Task],
    *,
    sampler: TurnSampler,
    chat: Chat,
    pool: Pool,
    samples_per_task: int,
    limits: Limits,
    run: int,
    category: Callable[[Task], str],
    member_messages: MemberMessages = same_for_all,
    forced_prefix: Sequence[int] = (),
    wait_for_tools: bool = False,
) -> Evaluation:
    """Sample every task ``samples_per_task`` times with the sampler's weights and rule.

    The same weights, ``run`` and tasks give the same trajectories. Lost trajectories are not counted, neither for nor
    against. Raises ValueError for no tasks, NothingSampledError if not a single trajectory could be scored.
    """
    if not tasks:
        raise ValueError("there are no tasks to evaluate on; give at least one.")
    sampled = rollout(
        [StreamTask(index, task) for index, task in enumerate(tasks)],
        sampler=sampler,
        chat=chat,
        pool=pool,
        group_size=samples_per_task,
        limits=limits,
        run=run,
        step=0,
        domain=Domain.EVALUATION,
        member_messages=member_messages,
        forced_prefix=forced_prefix,
        wait_for_tools=wait_for_tools,
    )
    return _summarise(tasks, sampled, samples_per_task, category)


def _summarise(
    tasks: Sequence[Task], sampled: Rollout, samples_per_task: int, category: Callable[[Task], str]
) -> Evaluation:
    by_category: dict[str, list[float]] = defaultdict(list)
    named: dict[str, list[float]] = defaultdict(list)
    means = []
    for group in sampled.groups:
        outcomes = [member.outcome for member in group if member.outcome is not None and member.valid]
        if not outcomes:
            continue
        means.append(statistics.fmean(outcome.reward for outcome in outcomes))
        by_category[category(tasks[group[0].stream])].append(means[-1])
        for outcome in outcomes:
            for name, value in outcome.named.items():
                named[name].append(value)
    if not means:
        raise NothingSampledError(
            f"none of {len(tasks)} tasks gave a scored trajectory; {len(sampled.skipped)} were skipped "
            f"({next((skip.reason for skip in sampled.skipped), 'none')}), {sampled.counts['trajectories_lost']} "
            "trajectories were lost."
        )
    return Evaluation(
        success=statistics.fmean(means),
        by_category={name: statistics.fmean(values) for name, values in sorted(by_category.items())},
        named={name: statistics.fmean(values) for name, values in sorted(named.items())},
        num_tasks=len(means),
        samples_per_task=samples_per_task,
        skipped={skip.task_id: skip.reason for skip in sampled.skipped},
        groups=sampled.groups,
    )
