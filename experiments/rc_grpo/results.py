"""What the runs of a grid came to, as numbers: read from their folders, nothing is run."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.rc_grpo.cells import Cell
from experiments.rc_grpo.evaluate_goals import FILE as GOALS_FILE
from experiments.rc_grpo.evaluate_goals import GOALS
from rlagents.metrics import read_metrics
from rlagents.report.correlation import pearson

STANDARD_ERRORS = 3.0
"""So far below a bound is beyond sampling error: by chance, one step of 700."""


@dataclass(frozen=True)
class Result:
    """One finished run.

    Attributes:
      goals: goal -> what the evaluation under it says.
      steps: lines of ``metrics.jsonl``; none of stage 1.
    """

    seed: int
    goals: Mapping[str, Mapping[str, Any]]
    steps: Sequence[Mapping[str, float]]

    def success(self, goal: str) -> float:
        """Share of the held-out tasks that are solved when ``goal`` is asked for."""
        return float(self.goals[goal]["all"]["success"]["mean"])

    def wilson(self, goal: str) -> tuple[float, float]:
        """Its 95% interval, by the tasks of this run."""
        low, high = self.goals[goal]["all"]["success"]["interval"]
        return float(low), float(high)

    @property
    def gap(self) -> float:
        """``P(R = 1 | high) - P(R = 1 | low)`` on the held-out tasks: eps of Proposition 4.3."""
        return self.success("high") - self.success("low")

    def at_start(self, metric: str) -> float | None:
        """A metric of the first step, whose rollout is that of stage 1's weights; None where there is none."""
        return self.steps[0].get(metric) if self.steps else None

    @property
    def entropy_with_reward(self) -> float | None:
        """Pearson's correlation of entropy and reward over the steps; None where one never changes."""
        return pearson([step["entropy"] for step in self.steps], [step["reward"] for step in self.steps])


def results_of(directory: Path, cell: Cell) -> list[Result]:
    """Finished runs of a cell, by seed. Raises ValueError for a ``goals.json`` that is damaged."""
    folders = sorted(directory.glob("seed-*"), key=lambda folder: int(folder.name.removeprefix("seed-")))
    return [
        _result(int(folder.name.removeprefix("seed-")), folder / cell.name)
        for folder in folders
        if (folder / cell.name / GOALS_FILE).exists()
    ]


def _result(seed: int, run: Path) -> Result:
    path, metrics = run / GOALS_FILE, run / "metrics.jsonl"
    try:
        goals = json.loads(path.read_text(encoding="utf-8"))
        result = Result(seed, goals, read_metrics(metrics) if metrics.exists() else [])
        _ = [(result.success(goal), result.wilson(goal)) for goal in GOALS]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); remove it, and the grid measures the run again.") from error
    return result


def below_collapse_bound(steps: Sequence[Mapping[str, float]]) -> tuple[int, int]:
    """Steps whose share of identical groups is below Proposition 4.2's bound beyond sampling error, and steps compared.

    Of ``n`` groups with the mean bound ``b``, the share would vary by ``sqrt(b (1 - b) / n)`` at most if each were as
    probable as its bound.
    """
    compared = [step for step in steps if step.get("peaked_groups", 0) > 0]
    return sum(map(_collapses_too_rarely, compared)), len(compared)


def below_variance_bound(steps: Sequence[Mapping[str, float]]) -> tuple[int, int]:
    """Steps whose variance within groups is below Proposition 4.3's bound, and steps compared.

    The bound of :func:`rlagents.conditioning.restored_variance` is taken from the very members whose variance is
    measured, and never above it: a single step below is an error of computation. What could contradict the proposition
    is :func:`below_variance_bound_of_step`.
    """
    compared = [step for step in steps if step.get("mixed_groups", 0) > 0]
    tiny = 1e-9
    below = [step for step in compared if step["mixed_variance"] < step["mixed_variance_bound"] - tiny]
    return len(below), len(compared)


def below_variance_bound_of_step(steps: Sequence[Mapping[str, float]], members: int) -> tuple[int, int]:
    """Steps below the bound with the gap between conditions over the whole step, beyond sampling error; steps compared.

    By Jensen's inequality ``E[eps^2] >= E[eps]^2`` over prompts, so the proposition says of the mean over groups of
    ``members`` members, two of each condition at least,

        E[sigma_g^2] >= (k (G - k) / G^2) E[eps]^2,    k (G - k) >= 2 (G - 2)

    ``E[eps]`` is ``reward_gap``, from all members of the step: other ones than those of a group. Its error is that of
    the difference of two shares of half the members each, carried through the square; that of the variance itself is
    left out, which makes the comparison stricter.
    """
    weight = 2 * (members - 2) / members**2
    compared = [step for step in steps if step.get("mixed_groups", 0) > 0 and "reward_gap" in step]
    return sum(_varies_too_little(step, weight) for step in compared), len(compared)


def _collapses_too_rarely(step: Mapping[str, float]) -> bool:
    bound = min(1.0, step["peaked_identical_bound"])
    error = math.sqrt(bound * (1 - bound) / step["peaked_groups"])
    return step["peaked_identical"] < bound - STANDARD_ERRORS * error - 1e-9


def _varies_too_little(step: Mapping[str, float], weight: float) -> bool:
    gap, half = step["reward_gap"], max(1.0, step["rollout/trajectories"] / 2)
    shares = [min(1.0, max(0.0, step[name])) for name in ("reward_high", "reward_low")]
    error = math.sqrt(sum(share * (1 - share) / half for share in shares))
    return step["mixed_variance"] < weight * max(0.0, gap - STANDARD_ERRORS * error) ** 2 - 1e-9
