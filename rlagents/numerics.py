"""Masked statistics, safe division, log-ratios and the maps between turns and tokens.

The only place that divides device statistics. Everything is computed in at least float32, and ``where`` stands before
any arithmetic that could go wrong, so that what a mask hides (NaN included) touches neither a value nor a gradient.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Axis = int | tuple[int, ...] | None

LOG_RATIO_BOUND = 20.0
"""Nats. ``exp`` of it (4.9e8) and its square are finite in float32; no useful ratio lies beyond."""

RELATIVE_FLOOR = 1e-6
"""A standard deviation below this share of the largest magnitude is rounding residue (float32 keeps about 1e-7)."""


def promote(x: Any) -> Array:
    """``x`` as a floating array of at least float32 (bfloat16 -> float32, float64 stays)."""
    x = jnp.asarray(x)
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def safe_divide(numerator: Any, denominator: Any) -> Array:
    """``numerator / denominator``, and 0 (value and gradient) where ``denominator`` is 0."""
    numerator, denominator = promote(numerator), promote(denominator)
    fine = denominator != 0
    return jnp.where(fine, numerator / jnp.where(fine, denominator, 1), 0)


def masked_sum(x: Any, where: Bool[Array, "..."], *, axis: Axis, keepdims: bool = False) -> Array:
    """Sum of ``x`` where ``where`` is True; 0 of nothing. ``x`` elsewhere may be NaN."""
    return jnp.sum(jnp.where(where, promote(x), 0), axis=axis, keepdims=keepdims)


def masked_count(where: Bool[Array, "..."], *, axis: Axis, keepdims: bool = False) -> Array:
    """How many are True, in the default float type (float32 counts exactly up to 2**24)."""
    return jnp.sum(where, axis=axis, keepdims=keepdims).astype(jnp.result_type(float))


def masked_mean(x: Any, where: Bool[Array, "..."], *, axis: Axis, keepdims: bool = False) -> Array:
    """Mean of ``x`` where ``where`` is True; 0 of nothing."""
    total = masked_sum(x, where, axis=axis, keepdims=keepdims)
    where = jnp.broadcast_to(where, jnp.shape(x))
    return safe_divide(total, masked_count(where, axis=axis, keepdims=keepdims).astype(total.dtype))


def masked_center(x: Any, where: Bool[Array, "..."], *, axis: Axis) -> Array:
    """``x - mean`` where ``where`` is True, 0 elsewhere; the mean along ``axis`` is that of the True entries.

    Centred twice: the first mean is rounded at the size of ``x``, the second at the size of the deviations, which are
    then good to the last digits however far from 0 the values lie.
    """
    once = jnp.where(where, promote(x) - masked_mean(x, where, axis=axis, keepdims=True), 0)
    return jnp.where(where, once - masked_mean(once, where, axis=axis, keepdims=True), 0)


def masked_variance(x: Any, where: Bool[Array, "..."], *, axis: Axis, ddof: int, keepdims: bool = False) -> Array:
    """``sum (x - mean)^2 / (n - ddof)`` over True entries, in two passes; 0 where ``n <= ddof``.

    Two passes: ``E[x^2] - E[x]^2`` leaves a residue of ``x^2`` times the rounding unit, which passes for variance.
    """
    squares = jnp.sum(jnp.square(masked_center(x, where, axis=axis)), axis=axis, keepdims=keepdims)
    count = masked_count(jnp.broadcast_to(where, jnp.shape(x)), axis=axis, keepdims=keepdims)
    return safe_divide(squares, jnp.maximum(count - ddof, 0).astype(squares.dtype))


def masked_std(
    x: Any,
    where: Bool[Array, "..."],
    *,
    axis: Axis,
    ddof: int,
    relative_floor: float = RELATIVE_FLOOR,
    scale: Any = None,
    keepdims: bool = False,
) -> Array:
    """Square root of :func:`masked_variance`; exactly 0 where it is at most ``relative_floor * scale``.

    ``scale`` is ``max |x|`` where ``where`` is True, unless given (for an ``x`` that was centred before). Equal values
    give exactly 0, whatever their size: the mean of n equal floats may miss them by a rounding step, and that step
    divided by itself is a whole standard deviation. The gradient where the result is 0 is 0.
    """
    x = promote(x)
    variance = masked_variance(x, where, axis=axis, ddof=ddof, keepdims=keepdims)
    if scale is None:
        scale = jnp.max(jnp.where(where, jnp.abs(x), 0), axis=axis, keepdims=keepdims, initial=0)
    alike = variance <= jnp.square(relative_floor * scale)  # False for NaN, which is to be seen
    return jnp.where(alike, 0, jnp.sqrt(jnp.where(alike, 1, variance)))


def log_ratio(numerator: Any, denominator: Any, *, bound: float = LOG_RATIO_BOUND) -> Array:
    """``numerator - denominator`` (log-probabilities, nats), clamped to ``[-bound, bound]`` *before* any ``exp``.

    Clamping after ``exp`` would leave ``inf * 0 = NaN`` in the gradient. Beyond the bound the gradient is 0.
    """
    return jnp.clip(promote(numerator) - promote(denominator), -bound, bound)


def turns_to_tokens(per_turn: Any, turn: Int[Array, "*b t"]) -> Array:
    """Give every token the value of its turn, ``[*b s], [*b t] -> [*b t]``; 0 where ``turn`` is -1 or beyond ``s``."""
    per_turn = jnp.asarray(per_turn)
    inside = (turn >= 0) & (turn < per_turn.shape[-1])
    values = jnp.take_along_axis(per_turn, jnp.where(inside, turn, 0), axis=-1)
    return jnp.where(inside, values, jnp.zeros((), per_turn.dtype))


def tokens_to_turns(per_token: Any, turn: Int[Array, "*b t"], num_turns: int, *, where: Bool[Array, "*b t"]) -> Array:
    """Sum tokens by turn: ``[*b t] -> [*b s]`` with ``s = num_turns`` (static), over tokens where ``where`` is True.

    Tokens of turn -1, or of a turn beyond ``num_turns``, count nowhere.
    """
    per_token = promote(per_token)
    where = where & (turn >= 0) & (turn < num_turns)
    values = jnp.where(where, per_token, 0).reshape(-1, per_token.shape[-1])
    index = jnp.where(where, turn, 0).reshape(values.shape)
    sums = jax.vmap(lambda v, i: jax.ops.segment_sum(v, i, num_segments=num_turns))(values, index)
    return sums.reshape(*per_token.shape[:-1], num_turns)


def turn_token_counts(turn: Int[Array, "*b t"], num_turns: int, *, where: Bool[Array, "*b t"]) -> Float[Array, "*b s"]:
    """Tokens of each turn where ``where`` is True: ``[*b s]``."""
    return tokens_to_turns(jnp.ones(turn.shape, jnp.result_type(float)), turn, num_turns, where=where)


def rank_in_turn(turn: Int[Array, "*b t"], num_turns: int, *, where: Bool[Array, "*b t"]) -> Int[Array, "*b t"]:
    """How many tokens of the same turn, where ``where`` is True, come before each: 0, 1, ... inside, -1 outside.

    Turns follow each other along ``t``; there are at most ``num_turns`` (static) of them.
    """
    counts = turn_token_counts(turn, num_turns, where=where)
    before = turns_to_tokens(jnp.cumsum(counts, -1) - counts, turn)
    return jnp.where(where, jnp.cumsum(where, -1) - 1 - before.astype(jnp.int32), -1)
