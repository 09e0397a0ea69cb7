"""The line of a step in ``metrics.jsonl``, read from the devices a step late, so that they never wait for it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from rlagents import learner
from rlagents.alarms import Raised, Watch
from rlagents.metrics.run_log import RunLog
from rlagents.rollouts.collate import padding_fraction
from rlagents.rollouts.driver import Rollout, Skipped
from rlagents.rollouts.trajectory import Trajectory
from rlagents.timing import OneStepLate
from rlagents.types import Batch, Kind, Metrics


@dataclass(frozen=True)
class Line:
    """What a step leaves to be written down.

    Attributes:
      step: number of the line.
      values: what the host knows.
      reports: of its updates, in order; on the devices.
      credited: metrics of its credit half; on the devices.
    """

    step: int
    values: Mapping[str, float]
    reports: Sequence[learner.StepReport]
    credited: Metrics


class StepLog:
    """Writes every line one ``put`` late; ``flush`` writes the one still held. Alarms look at what is written.

    An alarm is told in a line, written to the log, and counted in the metrics of its step. Both methods raise
    :class:`rlagents.learner.NonFiniteError` if the line they would write is the end of a run of updates that were not
    finite: a step late, with that step's number, and before a checkpoint, which is flushed for.
    """

    def __init__(self, log: RunLog, watch: Watch, tell: Callable[[str], None]):
        self._log, self._watch, self._tell = log, watch, tell
        self._late = OneStepLate[Line]()
        self.stopped: Raised | None = None
        """The first alarm that the run is to stop for."""

    def put(self, line: Line) -> None:
        """Hold ``line`` and write the one before it."""
        self._write(self._late.put(line))

    def flush(self) -> None:
        """Write what is held."""
        self._write(self._late.last())

    def _write(self, line: Line | None) -> None:
        if line is None:
            return
        for report in line.reports:
            learner.check_finite(report)
        learned = learner.report_values(*line.reports) | mean_values(line.credited)
        values = {**line.values, **learned}
        raised = self._watch.observe(line.step, values)
        self._log.metrics(line.step, values | self._watch.counted())
        for one in raised:
            self._log.alarm(one.step, one.alarm, one.value, one.threshold, one.message)
            self._tell(str(one))
        self.stopped = self.stopped or self._watch.stops(raised)


def rollout_values(sampled: Rollout, batch: Batch, *, version: int) -> dict[str, float]:
    """What the rollout was like: reward and facts over valid members, lengths, counts of events.

    ``version`` is that of the weights which learn from it; ``rollout/versions_behind`` is how much older, on average
    over sampled tokens, the weights were that sampled.
    """
    groups = [[member for member in group if member.valid] for group in sampled.groups]
    members = [member for group in groups for member in group]
    rewards = [member.outcome.reward for member in members if member.outcome is not None]
    void = [turn.void for member in members for turn in member.turn_facts]
    versions = [member.token_versions() for group in sampled.groups for member in group]
    behind = version - np.concatenate([np.zeros(0, np.int64), *versions])
    return {
        # Of nothing there is no mean: 0 would be a score.
        "reward": float(np.mean(rewards)) if rewards else math.nan,
        "uniform_groups": uniform_groups(groups),
        "garbled_turns": float(np.mean(void)) if void else 0.0,
        "turns": float(np.mean([member.num_turns for member in members])) if members else math.nan,
        "tokens_sampled": int(np.sum(batch.masks.kind == Kind.MODEL)),
        "padding_fraction": padding_fraction(batch),
        "tasks_skipped": len(sampled.skipped),
        "rollout/versions_behind": float(np.mean(behind)) if behind.size else 0.0,
        **{f"rollout/{name}": count for name, count in sampled.counts.items()},
    }


def skipped_lines(step: int, skipped: Sequence[Skipped], *, max_lines: int = 3) -> list[str]:
    """What a person is told of tasks that ``step`` (counted from 0) left out: a line each, and one for the rest."""
    lines = [f"step {step + 1}: task {one.task_id!r} is skipped: {one.reason}" for one in skipped[:max_lines]]
    left = len(skipped) - len(lines)
    return lines + ([f"step {step + 1}: {left} more tasks are skipped"] if left else [])


def uniform_groups(groups: Sequence[Sequence[Trajectory]]) -> float:
    """Share of ``groups``, of scored members, all of whose rewards are equal; of those with two members at least."""
    rewards = [{member.outcome.reward for member in group if member.outcome} for group in groups if len(group) > 1]
    return float(np.mean([len(found) == 1 for found in rewards])) if rewards else 0.0


def mean_values(means: Metrics) -> dict[str, float]:
    """Metrics as plain numbers."""
    return {name: float(mean.value) for name, mean in jax.device_get(means).items()}
