"""Refusals, while Python builds or traces a method: orders that make no sense, arrays that do not fit together."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from rlagents.methods.base import MethodError, Role, Transform
from rlagents.types import Credit, LogProbs, Masks, Rewards

_ORDER = "the order: filters and reward shapers, one estimator, reshapers; surrogate and penalties anywhere"


def check_order(stages: Sequence[Transform]) -> None:
    """Raise :class:`MethodError` unless the stages make a method: see :class:`rlagents.methods.base.Role`.

    Exactly one estimator and one surrogate; filters and reward shapers before the estimator, reshapers after it.
    """
    estimators = [i for i, stage in enumerate(stages) if stage.role is Role.ESTIMATOR]
    surrogates = [stage.name for stage in stages if stage.role is Role.SURROGATE]
    if not estimators:
        raise MethodError(
            "no estimator: nothing turns rewards into advantages. Put one, such as group_advantage(...), after filters"
            f" and reward shapers and before reshapers; the chain is {_names(stages)}."
        )
    if len(estimators) > 1:
        found = ", ".join(stages[i].name for i in estimators)
        raise MethodError(f"{len(estimators)} estimators ({found}): the last would overwrite the others. Keep one.")
    if not surrogates:
        raise MethodError(
            "no surrogate: nothing would push the policy along the advantages. Put one, such as"
            f" clipped_surrogate(...), anywhere in the chain, which is {_names(stages)}."
        )
    if len(surrogates) > 1:
        found = ", ".join(surrogates)
        raise MethodError(f"{len(surrogates)} surrogates ({found}): each token would count twice. Keep one.")
    at = estimators[0]
    name = stages[at].name
    for i, stage in enumerate(stages):
        if stage.role is Role.RESHAPER and i < at:
            raise MethodError(
                f"reshaper '{stage.name}' stands before the estimator '{name}', which would overwrite what it"
                f" writes: put '{stage.name}' after '{name}' ({_ORDER})."
            )
        if stage.role in (Role.FILTER, Role.REWARD) and i > at:
            what = "filter" if stage.role is Role.FILTER else "reward shaper"
            raise MethodError(
                f"{what} '{stage.name}' stands after the estimator '{name}', whose statistics were taken without it:"
                f" put '{stage.name}' before '{name}' ({_ORDER})."
            )


def _names(stages: Sequence[Transform]) -> str:
    return "chain(" + ", ".join(stage.name for stage in stages) + ")"


def check_fit(logprobs: LogProbs, masks: Masks, rewards: Rewards | None = None, credit: Credit | None = None) -> None:
    """Raise :class:`MethodError` where arrays do not share ``[p g]``, ``[p g s]`` or ``[p g t]``.

    Groups are an axis: a group of the wrong size cannot be folded silently into its neighbour.
    """
    if masks.kind.ndim != 3:
        raise MethodError(f"Masks.kind has shape {masks.kind.shape}; expected [p g t]: prompts, members, tokens.")
    p, g, t = masks.kind.shape
    tokens, members = (p, g, t), (p, g)
    _expect("[p g t]", tokens, {"Masks.turn": masks.turn})
    fields = ("policy", "entropy", "old", "old_entropy", "reference", "rollout")
    _expect("[p g t]", tokens, {f"LogProbs.{field}": getattr(logprobs, field) for field in fields})
    fields = ("num_turns", "valid", "truncated", "condition")
    _expect("[p g]", members, {f"Masks.{field}": getattr(masks, field) for field in fields})
    if rewards is not None:
        s = jnp.shape(rewards.turn_scores)[-1:]
        fields = ("turn_scores", "turn_tool_calls", "turn_tool_successes", "turn_void")
        _expect("[p g s]", (p, g, *s), {f"Rewards.{field}": getattr(rewards, field) for field in fields})
        named = {f"Rewards.named['{name}']": value for name, value in rewards.named.items()}
        _expect("[p g]", members, {"Rewards.outcome": rewards.outcome, **named})
    if credit is not None:
        _expect("[p g]", members, {"Credit.rewards": credit.rewards, "Credit.valid": credit.valid})
        _expect("[p g t]", tokens, {"Credit.mask": credit.mask, "Credit.advantages": credit.advantages})
    for name in ("valid", "truncated"):
        dtype = getattr(masks, name).dtype
        if dtype != jnp.bool_:
            raise MethodError(f"Masks.{name} has dtype {dtype}; expected bool: compare it with 0 first.")


def _expect(letters: str, shape: tuple[int, ...], arrays: Mapping[str, Any]) -> None:
    for name, array in arrays.items():
        if array is not None and jnp.shape(array) != shape:
            raise MethodError(
                f"{name} has shape {jnp.shape(array)}; beside Masks.kind it must be {letters} = {shape}: slice and pad"
                " them together, and keep every group whole on axis g."
            )
