"""Reshapers that encourage exploration where the policy was in doubt: entropy in the advantage.

An entropy bonus is put together from small functions, so that each paper's choice is one argument: *which* tokens
(:func:`after_successful_call`, :func:`after_any_call`, :func:`everywhere`), *against what* entropy is measured
(:func:`over_trajectory`, :func:`over_batch`), *how many* of the most doubtful (``top_fraction``), and *how* the bonus
enters (:func:`multiplied`, :func:`added`, :func:`added_up_to`). Entropy is the fact ``old_entropy``, that of the
weights that sampled: no gradient flows into it.
"""

from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlagents.methods.arguments import check_arguments, check_function
from rlagents.methods.base import Transform, advantages_of, fact, reshaper
from rlagents.numerics import masked_center, masked_count, masked_std, safe_divide, turns_to_tokens
from rlagents.types import Masks, Mean, Rewards

Which = Callable[[Rewards, Masks], Bool[Array, "p g t"]]
Against = Callable[[Float[Array, "p g t"], Bool[Array, "p g t"]], Float[Array, "p g t"]]
Enters = Callable[[Float[Array, "p g t"], Float[Array, "p g t"]], Float[Array, "p g t"]]

_EPSILON = 1e-8


def after_successful_call(rewards: Rewards, masks: Masks) -> Bool[Array, "p g t"]:
    """Tokens of a turn right after one with a successful tool call (TAO-RL's summary)."""
    return _after(rewards.turn_tool_successes, masks)


def after_any_call(rewards: Rewards, masks: Masks) -> Bool[Array, "p g t"]:
    """Tokens of a turn right after one with a tool call, successful or not (TAO-RL's released code)."""
    return _after(rewards.turn_tool_calls, masks)


def everywhere(rewards: Rewards, masks: Masks) -> Bool[Array, "p g t"]:
    """All tokens (AEPO)."""
    return masks.trainable


def over_trajectory(entropy: Float[Array, "p g t"], mask: Bool[Array, "p g t"]) -> Float[Array, "p g t"]:
    """``z = (H - mean_t H) / (std_t H + 1e-8)`` over a trajectory's trained tokens, population std; 0 for equal H."""
    return _z_score(entropy, mask, (-1,))


def over_batch(entropy: Float[Array, "p g t"], mask: Bool[Array, "p g t"]) -> Float[Array, "p g t"]:
    """The same over all trained tokens of the rollout batch, as the released codes do: not separable by row."""
    return _z_score(entropy, mask, (-3, -2, -1))


def multiplied(advantages: Float[Array, "p g t"], bonus: Float[Array, "p g t"]) -> Float[Array, "p g t"]:
    """``A (1 + bonus)``: keeps the sign while ``bonus > -1``; in a bad trajectory, doubt is punished *more*."""
    return advantages * (1 + bonus)


def added(advantages: Float[Array, "p g t"], bonus: Float[Array, "p g t"]) -> Float[Array, "p g t"]:
    """``A + bonus``: doubt is praised whatever came of it."""
    return advantages + bonus


def added_up_to(share: float) -> Enters:
    """``A + clip(bonus, -|A| * share, |A| * share)``: added, and for a ``share`` below 1 never past 0.

    Raises ValueError for a negative ``share``.
    """
    check_arguments("added_up_to", "0 or more, as a share of |A|, such as 0.5", lambda share: share >= 0, share=share)

    def enters(advantages, bonus):
        most = jnp.abs(advantages) * share
        return advantages + jnp.clip(bonus, -most, most)

    return enters


def entropy_bonus(
    coefficient: float,
    *,
    which: Which,
    against: Against = over_trajectory,
    top_fraction: float = 1.0,
    enters: Enters = multiplied,
) -> Transform:
    """``A[t] <- enters(A[t], coefficient * gate[t] * z[t])``, with ``z`` from ``against(old_entropy)``.

    ``gate`` is 1 on tokens of ``which`` whose entropy is among the highest ``top_fraction`` of their trajectory (ties
    count in), else 0. TAO-RL, arXiv 2606.03762: ``which=after_successful_call``, coefficient 0.01, gate 0.2
    of the tokens. AEPO's entropy-balanced advantage, arXiv 2510.14545: ``which=everywhere``.

    Reads ``advantages``, ``mask``, ``old_entropy`` (needed), and what ``which`` reads; no gradient. Metric:
    ``bonus_tokens`` (share of trained tokens behind the gate).

    Raises ValueError for a ``top_fraction`` outside ``(0, 1]``.

    >>> from rlagents.methods import specimen
    >>> specimen.advantages(entropy_bonus(0.1, which=after_successful_call))  # entropies 0.2, 1.0, 0.6
    [[1.0, 1.12, 1.0], [-1.0, -1.0, -1.0]]
    >>> specimen.advantages(entropy_bonus(0.1, which=everywhere, enters=added))
    [[0.88, 1.12, 1.0], [-1.12, -1.0, -0.88]]
    """
    check_bonus("entropy_bonus", coefficient, top_fraction, which, enters)
    check_function("entropy_bonus", "against", against, "over_trajectory or over_batch")

    def credit(credit, logprobs, rewards, masks):
        entropy = fact("entropy_bonus", logprobs, "old_entropy")
        gate = credit.mask & which(rewards, masks) & highest(entropy, credit.mask, top_fraction)
        bonus = jnp.where(gate, coefficient * against(entropy, credit.mask), 0)
        advantages = enters(advantages_of("entropy_bonus", credit), bonus)
        return replace(credit, advantages=advantages), {"bonus_tokens": Mean.of(gate, credit.mask)}

    return reshaper("entropy_bonus", credit, {"old_entropy"})


def check_bonus(name: str, coefficient: float, top_fraction: float, which: Which, enters: Enters) -> None:
    """Raise ValueError unless ``coefficient`` is a number, ``0 < top_fraction <= 1``, and both can be called."""
    check_function(name, "which", which, "a choice of tokens such as after_successful_call")
    check_function(name, "enters", enters, "multiplied, added or added_up_to(share)")
    check_arguments(name, "a number, such as 0.01", lambda coefficient: True, coefficient=coefficient)
    check_arguments(
        name,
        "more than 0 and at most 1, such as 0.2",
        lambda top_fraction: 0 < top_fraction <= 1,
        top_fraction=top_fraction,
    )


def _after(counts, masks):
    before = jnp.pad(counts[..., :-1] > 0, ((0, 0), (0, 0), (1, 0)))
    return turns_to_tokens(before, masks.turn)


def _z_score(entropy, mask, axes):
    std = masked_std(entropy, mask, axis=axes, ddof=0, keepdims=True)
    return jnp.where(std != 0, safe_divide(masked_center(entropy, mask, axis=axes), std + _EPSILON), 0)


def highest(entropy: Float[Array, "p g t"], mask: Bool[Array, "p g t"], fraction: float) -> Bool[Array, "p g t"]:
    """The ``ceil(fraction * n)`` highest of each row's ``n`` trained tokens, and those equal to the least of them."""
    falling = -jnp.sort(jnp.where(mask, -entropy, jnp.inf), axis=-1)
    # Less a millionth: 0.28 * 25 is 7, not a rounding step more.
    count = jnp.ceil(fraction * masked_count(mask, axis=-1, keepdims=True) * (1 - 1e-6)).astype(jnp.int32)
    least = jnp.take_along_axis(falling, jnp.maximum(count - 1, 0), axis=-1)
    return mask & (entropy >= least)
