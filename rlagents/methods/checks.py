"""Refusals, while Python builds or traces a method: orders that make no sense, arrays and answers that do not fit."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlagents.methods.base import MethodError, Role, State, Transform, parts
from rlagents.methods.reductions import constant, sequence_mean, token_mean
from rlagents.types import Credit, LogProbs, Masks, Mean, Metrics, Rewards

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


def check_reduction(reduction: Any) -> None:
    """Raise :class:`MethodError` for what is no reduction, or is the constructor of one."""
    if not callable(reduction):
        raise MethodError(
            f"the reduction is {reduction!r}; expected a function from a mask [p g t] to weights [p g t]: give"
            " token_mean(), sequence_mean() or constant(length)."
        )
    if reduction in (token_mean, sequence_mean, constant):
        name = reduction.__name__
        call = "constant(length)" if reduction is constant else f"{name}()"
        raise MethodError(f"the reduction is the constructor {name} itself, not what it makes: call it, {call}.")


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
        marks = {f"Credit.marks['{name}']": mark for name, mark in credit.marks.items()}
        _expect("[p g t]", tokens, {"Credit.mask": credit.mask, "Credit.advantages": credit.advantages, **marks})
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


def credit_answer(stage: str, answer: Any, masks: Masks) -> tuple[Credit, State, Metrics]:
    """What a credit half returned, or a :class:`MethodError` naming the stage if it is not what a chain can use."""
    credit, state, metrics = parts(stage, "credit", answer, ("credit", "state", "metrics"))
    if not isinstance(credit, Credit):
        raise MethodError(
            f"the credit half of stage '{stage}' returned a {type(credit).__name__} as credit; expected a Credit:"
            " dataclasses.replace(credit, ...) changes the one that it was given."
        )
    tokens, members = masks.kind.shape, masks.kind.shape[:2]
    shapes = {"rewards": members, "valid": members, "mask": tokens}
    if credit.advantages is not None:
        shapes["advantages"] = tokens
    for name, mark in credit.marks.items():
        _answer_shape(stage, "credit", f"marks['{name}']", mark, tokens)
    for field, shape in shapes.items():
        _answer_shape(stage, "credit", field, getattr(credit, field), shape)
    _answer_metrics(stage, "credit", metrics)
    return credit, state, metrics


def loss_answer(stage: str, answer: Any, masks: Masks) -> tuple[Float[Array, "p g t"], Metrics]:
    """What a loss half returned, or a :class:`MethodError` naming the stage if it is not what a chain can use."""
    term, metrics = parts(stage, "loss", answer, ("term", "metrics"))
    _answer_shape(stage, "loss", "term", term, masks.kind.shape)
    _answer_metrics(stage, "loss", metrics)
    return term, metrics


def _answer_shape(stage: str, half: str, what: str, value: Any, shape: tuple[int, ...]) -> None:
    found = getattr(value, "shape", None)
    if found != shape:
        described = f"a {type(value).__name__}" if found is None else f"shape {found}"
        letters = "[p g t]" if len(shape) == 3 else "[p g]"
        raise MethodError(
            f"the {half} half of stage '{stage}' returned {what} of {described}; expected {letters} = {shape}: one"
            f" number a {'token' if len(shape) == 3 else 'member'}, not summed and not left to broadcast."
        )


def _answer_metrics(stage: str, half: str, metrics: Any) -> None:
    if not isinstance(metrics, Mapping):
        raise MethodError(
            f"the {half} half of stage '{stage}' returned metrics of type {type(metrics).__name__}; expected a dict"
            " from names to Mean: {} where there are none."
        )
    for name, value in metrics.items():
        if not isinstance(value, Mean):
            raise MethodError(
                f"the {half} half of stage '{stage}' returned the metric {name!r} of type {type(value).__name__};"
                " expected a Mean, which adds across micro-batches: Mean.of(values, where)."
            )
