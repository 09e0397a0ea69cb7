"""Which groups are worth collecting: those that the filter stages of a method would not empty.

    informative(predicates.uniform_groups)        # dynamic sampling of DAPO, arXiv 2503.14476, section 3.2

The predicates are those of the filters, so sampling and learning agree on a group, unless the method shapes rewards
before it filters by them.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from rlagents.rollouts.trajectory import Trajectory
from rlagents.types import Batch, Credit, Masks, Rewards

Predicate = Callable[[Credit, Rewards, Masks], Any]
"""``(credit, rewards, masks) -> [p g]`` bool, True for members to leave out; it looks at one group at a time."""

Collate = Callable[[Sequence[Sequence[Trajectory]]], Batch]
"""Groups to a batch, its rows in their order, padded rows after them."""

Informative = Callable[[Sequence[Sequence[Trajectory]], Collate], list[str | None]]
"""``(groups, collate) -> `` for each group None if it is informative, else the name of what says it is not."""


def anything(groups: Sequence[Sequence[Trajectory]], collate: Collate) -> list[str | None]:
    """Take every group as it comes."""
    del collate
    return [None] * len(groups)


def informative(*predicates: Predicate) -> Informative:
    """A group is informative if ``chain(drop(predicate), drop(predicate), ...)`` leaves one of its members, at least.

    So each predicate is asked about what those before it have left, and all see the outcome as reward. Of a group that
    is not informative it names the first predicate after which no member is left, or ``no_valid_member`` where all were
    lost before.

    Raises:
      ValueError: no predicates; from what is returned, a predicate whose answer is not a bool for each member.
    """
    if not predicates:
        raise ValueError("informative() without a predicate takes every group; give one, or say anything.")

    @jax.jit
    def answers(credit: Credit, rewards: Rewards, masks: Masks) -> list[Any]:
        found = []
        for predicate in predicates:
            found.append(predicate(credit, rewards, masks))
            # What a filter after another one sees; a wrong answer is refused by whoever reads it.
            if getattr(found[-1], "shape", None) == credit.valid.shape and found[-1].dtype == bool:
                kept = credit.valid & ~found[-1]
                credit = dataclasses.replace(credit, valid=kept, mask=credit.mask & kept[..., None])
        return found

    def judge(groups: Sequence[Sequence[Trajectory]], collate: Collate) -> list[str | None]:
        if not groups:
            return []
        batch = collate(groups)
        credit = Credit.opening(batch.rewards, batch.masks)
        left = np.asarray(credit.valid)
        names = [None if some else "no_valid_member" for some in _any_left(left)]
        for predicate, answer in zip(predicates, answers(credit, batch.rewards, batch.masks), strict=True):
            left, emptied = left & ~_checked(answer, predicate, left.shape), predicate.__name__
            names = [name or (None if some else emptied) for name, some in zip(names, _any_left(left), strict=True)]
        return names[: len(groups)]

    return judge


def _any_left(left: np.ndarray) -> list[bool]:
    return [bool(group.any()) for group in left]


def _checked(answer: Any, predicate: Predicate, shape: tuple[int, ...]) -> np.ndarray:
    out = np.asarray(answer)
    if out.dtype != bool or out.shape != shape:
        raise ValueError(
            f"{predicate.__name__} answers with {out.dtype} of shape {out.shape}; expected a bool for each member, "
            f"shape {shape}."
        )
    return out
