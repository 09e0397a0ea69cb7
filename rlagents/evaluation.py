"""Success on held-out tasks: the same rollout loop, another domain of random numbers, nothing learned."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlagents.facts import Outcome, Task
from rlagents.intervals import Interval, wilson
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
      whole: over all tasks that were sampled.
      by_category: the same for each category.
      samples_per_task: trajectories of each.
      skipped: tasks left out, by reason.
      groups: all trajectories.
    """

    whole: "Measured"
    by_category: Mapping[str, "Measured"]
    samples_per_task: int
    skipped: Mapping[str, str]
    groups: Sequence[Sequence[Trajectory]]

    @property
    def success(self) -> float:
        """Over all tasks."""
        return self.whole.success

    def values(self) -> dict[str, float]:
        """For a log: plain numbers. Intervals are left out where rewards are no numbers in [0, 1]."""
        named = {"": self.whole} | {f"/{name}": measured for name, measured in self.by_category.items()}
        bounds = {name: interval for name, measured in named.items() if (interval := measured.interval) is not None}
        return {
            **{f"success{name}": measured.success for name, measured in named.items()},
            **{f"success_low{name}": interval.low for name, interval in bounds.items()},
            **{f"success_high{name}": interval.high for name, interval in bounds.items()},
            **{f"named/{name}": value for name, value in self.whole.named.items()},
            "tasks": self.whole.num_tasks,
            "samples_per_task": self.samples_per_task,
            "tasks_skipped": len(self.skipped),
        }

    def table(self) -> list[str]:
        """A line for all tasks and for each category: success, then all facts, each with its interval."""
        rows = [("all", self.whole), *self.by_category.items()]
        width = max(len(name) for name, _ in rows)
        return [
            f"{name:{width}}  {measured.num_tasks:4} tasks  {_shown('success', measured.success, measured.interval)}"
            + "".join(f"  {_shown(fact, value, measured.bounds[fact])}" for fact, value in measured.named.items())
            for name, measured in rows
        ]

    def document(self) -> dict[str, Any]:
        """All of ``table`` as JSON says it: what was measured of all tasks and of each category."""
        return {
            "all": self.whole.document(),
            "by_category": {name: measured.document() for name, measured in self.by_category.items()},
            "samples_per_task": self.samples_per_task,
            "skipped": dict(self.skipped),
        }

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {measured.success:.1%}" for name, measured in self.by_category.items())
        skipped = f"; {len(self.skipped)} skipped" if self.skipped else ""
        return (
            f"{self.success:.1%} of {self.whole.num_tasks} tasks x {self.samples_per_task} samples ({parts}{skipped})"
        )


@dataclass(frozen=True)
class Measured:
    """What some tasks came to. All means are over tasks, of the mean over the samples of each.

    Attributes:
      success: mean reward.
      named: means of the outcome's named facts.
      interval: of ``success``, 95%; None where a task's is outside [0, 1].
      bounds: the same of each of ``named``.
      num_tasks: tasks counted; skipped and lost ones are not.
    """

    success: float
    named: Mapping[str, float]
    interval: Interval | None
    bounds: Mapping[str, Interval | None]
    num_tasks: int

    def document(self) -> dict[str, Any]:
        """As JSON says it; an interval is [low, high]."""
        named = {fact: {"mean": value, "interval": self.bounds[fact]} for fact, value in self.named.items()}
        return {"success": {"mean": self.success, "interval": self.interval}, "named": named, "tasks": self.num_tasks}


def measured(tasks: Sequence[Sequence[Outcome]]) -> Measured:
    """Summarise the outcomes of each task's samples; a fact is counted for tasks that have it."""
    rewards = [statistics.fmean(outcome.reward for outcome in outcomes) for outcomes in tasks]
    facts: dict[str, list[float]] = defaultdict(list)
    for outcomes in tasks:
        for name in {name for outcome in outcomes for name in outcome.named}:
            facts[name].append(statistics.fmean(each.named[name] for each in outcomes if name in each.named))
    return Measured(
        success=statistics.fmean(rewards),
        named={name: statistics.fmean(values) for name, values in sorted(facts.items())},
        interval=_interval(rewards),
        bounds={name: _interval(values) for name, values in facts.items()},
        num_tasks=len(tasks),
    )


def _interval(values: Sequence[float]) -> Interval | None:
    return wilson(statistics.fmean(values), len(values)) if all(0 <= value <= 1 for value in values) else None


def _shown(name: str, value: float, interval: Interval | None) -> str:
    return (
        f"{name} {value:.4g}" if interval is None else f"{name} {value:.1%} ({interval.low:.1%} to {interval.high:.1%})"
    )


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
    by_category: dict[str, list[list[Outcome]]] = defaultdict(list)
    whole: list[list[Outcome]] = []
    for group in sampled.groups:
        outcomes = [member.outcome for member in group if member.outcome is not None and member.valid]
        if outcomes:
            whole.append(outcomes)
            by_category[category(tasks[group[0].stream])].append(outcomes)
    if not whole:
        raise NothingSampledError(
            f"none of {len(tasks)} tasks gave a scored trajectory; {len(sampled.skipped)} were skipped "
            f"({next((skip.reason for skip in sampled.skipped), 'none')}), {sampled.counts['trajectories_lost']} "
            "trajectories were lost."
        )
    return Evaluation(
        whole=measured(whole),
        by_category={name: measured(part) for name, part in sorted(by_category.items())},
        samples_per_task=samples_per_task,
        skipped={skip.task_id: skip.reason for skip in sampled.skipped},
        groups=sampled.groups,
    )
