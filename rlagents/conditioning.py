"""What conditioning on a reward does within groups, and both sides of the two propositions of RC-GRPO about it.

Source: RC-GRPO (arXiv 2602.03025), appendix A. Both propositions are about a policy that is sampled from at temperature
1 without top-p; with another rule the recorded log-probabilities are not those that tokens were drawn with, and the
second comparison means nothing.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from rlagents.rollouts.conditions import HIGH, LOW
from rlagents.rollouts.trajectory import Trajectory
from rlagents.types import Kind

Groups = Sequence[Sequence[Trajectory]]


class Sides(NamedTuple):
    """What a proposition bounds from below, as one group shows it, and the bound."""

    measured: float
    bound: float


def conditioning(
    *, low: int = LOW, high: int = HIGH, solved: float = 1.0, min_peaked_bound: float = 0.05
) -> Callable[[Groups], dict[str, float]]:
    """Return ``groups -> metrics`` of one step's rollout, without those that would be a mean of nothing.

    Lost members are left out.

    ``reward_low``, ``reward_high``, ``reward_gap``: P(R = 1 | condition) of binary rewards, and their difference.

    ``mixed_groups``, ``mixed_variance``, ``mixed_variance_bound``: Proposition 4.3, ``E[sigma_g^2] >= kappa eps^2``,
    means over groups with two members or more of each condition; see :func:`restored_variance`.

    ``identical_groups``: share of groups of one condition (or none) whose members are all one trajectory.
    ``peaked_groups``, ``peaked_identical``, ``peaked_identical_bound``: Proposition 4.2, ``P(all equal) >= e^(-G sum of
    KL)``, over groups whose bound is ``min_peaked_bound`` or more; see :func:`identical`.

    Args:
      low, high: conditions that are compared.
      solved: a reward from which on a trajectory counts as an optimal one.
      min_peaked_bound: bounds below are true and say nothing.
    """

    def values(groups: Groups) -> dict[str, float]:
        groups = [[member for member in group if member.valid] for group in groups]
        means = {
            name: _mean(_reward(member) for group in groups for member in group if member.condition == condition)
            for name, condition in (("reward_low", low), ("reward_high", high))
        }
        mixed = [sides for group in groups if (sides := restored_variance(group, low, high)) is not None]
        alike = [sides for group in groups if (sides := identical(group, solved)) is not None]
        peaked = [sides for sides in alike if sides.bound >= min_peaked_bound]
        found = {
            **means,
            "reward_gap": means["reward_high"] - means["reward_low"],
            "mixed_groups": len(mixed),
            "mixed_variance": _mean(sides.measured for sides in mixed),
            "mixed_variance_bound": _mean(sides.bound for sides in mixed),
            "identical_groups": _mean(sides.measured for sides in alike),
            "peaked_groups": len(peaked),
            "peaked_identical": _mean(sides.measured for sides in peaked),
            "peaked_identical_bound": _mean(sides.bound for sides in peaked),
        }
        return {name: value for name, value in found.items() if not math.isnan(value)}

    return values


def restored_variance(group: Sequence[Trajectory], low: int, high: int) -> Sides | None:
    """Population variance of a group's rewards, and what a gap between its conditions makes of it at least.

    bound = p (1 - p) eps^2, with p the group's own share of ``high`` and for eps^2 the estimate

        (mean_high - mean_low)^2 - s_high^2 / n_high - s_low^2 / n_low        (s^2: unbiased variances)

    whose expectation is the square of the true gap, so that it may be negative. Over independent draws of the condition
    the bound's expectation is ``kappa eps^2``, kappa = (G-1)/G P(high) P(low). None unless there are two of each.
    """
    rewards = {c: np.array([_reward(m) for m in group if m.condition == c], np.float64) for c in (low, high)}
    if min(map(len, rewards.values())) < 2:
        return None
    noise = sum(of_one.var(ddof=1) / len(of_one) for of_one in rewards.values())
    squared_gap = (rewards[high].mean() - rewards[low].mean()) ** 2 - noise
    both = np.concatenate(list(rewards.values()))
    p = len(rewards[high]) / len(both)
    return Sides(float(both.var()), float(p * (1 - p) * squared_gap))


def identical(group: Sequence[Trajectory], solved: float) -> Sides | None:
    """Whether all members are one trajectory (1 or 0), and how probable that is at least, by what was sampled.

    For any trajectory, P(all G equal) >= pi(trajectory)^G. The KL divergence from a policy that always does the right
    thing is -log pi of each of its steps, so for an optimal trajectory this is the ``e^(-G sum of KL)`` of the proof,
    not less than the proposition's ``e^(-G T eps)``. Of the members that solved the task, the most probable one gives
    the bound; without one it is 0. None for fewer than two members, or more than one condition: then each member
    answers to a prompt of its own.
    """
    if len(group) < 2 or len({member.condition for member in group}) > 1:
        return None
    alike = all(list(member.token_ids) == list(group[0].token_ids) for member in group)
    best = max((_log_prob(member) for member in group if _reward(member) >= solved), default=-math.inf)
    return Sides(float(alike), math.exp(len(group) * best))


def _reward(member: Trajectory) -> float:
    assert member.outcome is not None, "a valid trajectory has an outcome"
    return float(member.outcome.reward)


def _log_prob(member: Trajectory) -> float:
    sampled = np.asarray(member.kinds) == Kind.MODEL
    return float(np.asarray(member.log_probs, np.float64)[sampled].sum())


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return float(np.mean(found)) if found else math.nan
