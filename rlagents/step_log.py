"""The line of a step in ``metrics.jsonl``, read from the devices a step late, so that they never wait for it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from rlagents import learner
from rlagents.metrics import MetricsWriter
from rlagents.rollouts.collate import padding_fraction
from rlagents.rollouts.driver import Rollout
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
    """Writes every line one ``put`` late; ``flush`` writes the one still held.

    Both raise :class:`rlagents.learner.NonFiniteError` if the line they would write is the end of a run of updates
    that were not finite: a step late, with that step's number, and before a checkpoint, which is flushed for.
    """

    def __init__(self, writer: MetricsWriter):
        self._writer, self._late = writer, OneStepLate[Line]()

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
        self._writer.write(line.step, {**line.values, **learned})


def rollout_values(sampled: Rollout, batch: Batch, *, version: int) -> dict[str, float]:
    """What the rollout was like: reward and facts over valid members, lengths, counts of events.

    ``version`` is that of the weights which learn from it; ``rollout/versions_behind`` is how much older, on average
    over sampled tokens, the weights were that sampled.
    """
    members = [member for group in sampled.groups for member in group if member.valid]
    rewards = [member.outcome.reward for member in members if member.outcome is not None]
    versions = [member.token_versions() for group in sampled.groups for member in group]
    behind = version - np.concatenate([np.zeros(0, np.int64), *versions])
    return {
        # Of nothing there is no mean: 0 would be a score.
        "reward": float(np.mean(rewards)) if rewards else math.nan,
        "turns": float(np.mean([member.num_turns for member in members])) if members else math.nan,
        "tokens_sampled": int(np.sum(batch.masks.kind == Kind.MODEL)),
        "padding_fraction": padding_fraction(batch),
        "tasks_skipped": len(sampled.skipped),
        "rollout/versions_behind": float(np.mean(behind)) if behind.size else 0.0,
        **{f"rollout/{name}": count for name, count in sampled.counts.items()},
    }


def mean_values(means: Metrics) -> dict[str, float]:
    """Metrics as plain numbers."""
    return {name: float(mean.value) for name, mean in jax.device_get(means).items()}
