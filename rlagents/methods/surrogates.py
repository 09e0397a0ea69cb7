"""Surrogates: the term of the loss whose gradient is the policy gradient.

All use one ratio ``r = exp(policy - old)`` per token ``[p g t]``, whose logarithm is clamped before ``exp``
(:func:`rlagents.numerics.log_ratio`); where the clamp binds, the gradient through ``r`` is 0. At ``policy == old`` the
gradient of each is ``-A``.
"""

import jax.numpy as jnp

from rlagents.methods.arguments import check_arguments
from rlagents.methods.base import Transform, advantages_of, fact, surrogate
from rlagents.methods.border import detach
from rlagents.numerics import log_ratio, safe_divide
from rlagents.types import Mean


def policy_gradient() -> Transform:
    """REINFORCE: ``term = -A log pi``, with ``log pi = policy``.

    Right where each rollout batch gets a single update; it does not know of ``old``. Gradient: ``-A``. Reads
    ``policy``, ``advantages``. Williams, 1992.

    >>> from rlagents.methods import specimen
    >>> specimen.slopes(policy_gradient())
    [[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]]
    """

    def loss(logprobs, credit, masks):
        return -advantages_of("policy_gradient", credit) * logprobs.policy, {}

    return surrogate("policy_gradient", loss)


def clipped_surrogate(clip_low: float, clip_high: float) -> Transform:
    """Policy gradient that stops where a token's probability has moved far enough in its advantage's direction.

    ``term = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)``, ``r = exp(policy - old)`` per token ``[p g t]``, the
    log-ratio clamped before ``exp`` (:func:`rlagents.numerics.log_ratio`). PPO (arXiv 1707.06347, eq. 7) with equal
    bounds; clip-higher (DAPO, arXiv 2503.14476) with ``clip_high > clip_low``.

    Gradient flows through ``policy`` alone: ``-r A`` where the clip does not bind, 0 where it does (``A > 0`` and
    ``r > 1 + clip_high``, or ``A < 0`` and ``r < 1 - clip_low``); ``-A`` at ``policy == old``. Reads ``policy``,
    ``old``, ``advantages``. Metrics over trained tokens: ``ratio`` (mean), ``clip_fraction`` (share where it binds).

    Raises ValueError unless ``0 < clip_low <= 1`` and ``clip_high > 0``.

    >>> from rlagents.methods import specimen
    >>> specimen.terms(clipped_surrogate(0.2, 0.2))  # ratios 1, 1.5, 1 and 1, 0.5, 1
    [[-1.0, -1.2, -1.0], [1.0, 0.8, 1.0]]
    >>> specimen.slopes(clipped_surrogate(0.2, 0.2))
    [[-1.0, 0.0, -1.0], [1.0, 0.0, 1.0]]
    """
    check_clip("clipped_surrogate", clip_low, clip_high)

    def loss(logprobs, credit, masks):
        ratio, advantages = _ratio_and_advantages("clipped_surrogate", logprobs, credit)
        free = ratio * advantages
        bounded = jnp.clip(ratio, 1 - clip_low, 1 + clip_high) * advantages
        metrics = {"ratio": Mean.of(ratio, credit.mask), "clip_fraction": Mean.of(bounded < free, credit.mask)}
        return -jnp.minimum(free, bounded), metrics

    return surrogate("clipped_surrogate", loss)


def dual_clip_surrogate(clip_low: float, clip_high: float, most: float) -> Transform:
    """PPO's clip, and a bound on how hard a token may be pushed down however likely it has become.

    ``term = -max(min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), most * A)`` where ``A < 0``, PPO's where ``A >= 0``.
    Without it ``r`` multiplies a negative advantage without limit. Ye et al., arXiv 1912.09729, eq. 8; SimpleTIR and
    TAO-RL use 3. Gradient as :func:`clipped_surrogate`, and 0 where ``A < 0`` and ``r > most``. Reads ``policy``,
    ``old``, ``advantages``. Metrics: ``ratio``, ``clip_fraction`` (share where any bound binds).

    Raises ValueError for bounds that :func:`clipped_surrogate` refuses, or unless ``most > 1 + clip_high``.

    >>> from rlagents.methods import specimen
    >>> specimen.terms(dual_clip_surrogate(0.2, 0.2, 1.3), outcome=[[0.0, 1.0]])  # A = -1 where the ratio is 1.5
    [[1.0, 1.3, 1.0], [-1.0, -0.5, -1.0]]
    """
    check_clip("dual_clip_surrogate", clip_low, clip_high)
    expected = f"more than 1 + clip_high = {1 + clip_high}"
    check_arguments("dual_clip_surrogate", expected, lambda most: most > 1 + clip_high, most=most)

    def loss(logprobs, credit, masks):
        ratio, advantages = _ratio_and_advantages("dual_clip_surrogate", logprobs, credit)
        free = ratio * advantages
        kept = jnp.minimum(free, jnp.clip(ratio, 1 - clip_low, 1 + clip_high) * advantages)
        kept = jnp.where(advantages < 0, jnp.maximum(kept, most * advantages), kept)
        metrics = {"ratio": Mean.of(ratio, credit.mask), "clip_fraction": Mean.of(kept != free, credit.mask)}
        return -kept, metrics

    return surrogate("dual_clip_surrogate", loss)


def weighted_surrogate(clip_low: float, clip_high: float) -> Transform:
    """REINFORCE with a clipped weight, in which no token falls silent.

    ``term = -stop_gradient(clip(r, 1 - clip_low, 1 + clip_high)) A log pi``. CISPO: MiniMax-M1, arXiv 2506.13585, eq. 4
    (it tunes the upper bound alone: ``clip_low=1`` leaves the lower one out). Gradient: ``-clip(r) A``, never 0 through
    the clip. Reads ``policy``, ``old``, ``advantages``. Metrics: ``ratio``, ``clip_fraction`` (share of weights at a
    bound). Raises ValueError for bounds that :func:`clipped_surrogate` refuses.

    >>> from rlagents.methods import specimen
    >>> specimen.slopes(weighted_surrogate(0.2, 0.2))
    [[-1.0, -1.2, -1.0], [1.0, 0.8, 1.0]]
    """
    check_clip("weighted_surrogate", clip_low, clip_high)

    def loss(logprobs, credit, masks):
        ratio, advantages = _ratio_and_advantages("weighted_surrogate", logprobs, credit)
        weight = detach(jnp.clip(ratio, 1 - clip_low, 1 + clip_high))
        metrics = {"ratio": Mean.of(ratio, credit.mask), "clip_fraction": Mean.of(weight != ratio, credit.mask)}
        return -weight * advantages * logprobs.policy, metrics

    return surrogate("weighted_surrogate", loss)


def gradient_keeping_surrogate(clip_low: float, clip_high: float) -> Transform:
    """PPO's clip in value; above the upper bound the gradient is kept, at the size it has there.

    As :func:`clipped_surrogate`, with ``(1 + clip_high) r / stop_gradient(r)`` for the bound where ``r > 1 +
    clip_high``: for ``A > 0`` the gradient there is ``-(1 + clip_high) A`` instead of 0, so that rare tokens that open
    a new path go on being learned. AEPO, arXiv 2510.14545. Reads ``policy``, ``old``, ``advantages``. Metrics:
    ``ratio``, ``clip_fraction`` (share where a bound binds). Raises ValueError for bounds that
    :func:`clipped_surrogate` refuses.

    >>> from rlagents.methods import specimen
    >>> specimen.slopes(gradient_keeping_surrogate(0.2, 0.2))
    [[-1.0, -1.2, -1.0], [1.0, 0.0, 1.0]]
    """
    check_clip("gradient_keeping_surrogate", clip_low, clip_high)

    def loss(logprobs, credit, masks):
        ratio, advantages = _ratio_and_advantages("gradient_keeping_surrogate", logprobs, credit)
        high = ratio > 1 + clip_high
        at_bound = (1 + clip_high) * safe_divide(ratio, detach(ratio))
        free = ratio * advantages
        bounded = jnp.where(high, at_bound, jnp.maximum(ratio, 1 - clip_low)) * advantages
        metrics = {"ratio": Mean.of(ratio, credit.mask), "clip_fraction": Mean.of(bounded < free, credit.mask)}
        return -jnp.where(bounded < free, bounded, free), metrics

    return surrogate("gradient_keeping_surrogate", loss)


def check_clip(name: str, clip_low: float, clip_high: float) -> None:
    """Raise ValueError unless ``0 < clip_low <= 1`` and ``clip_high > 0``."""
    check_arguments(
        name,
        "distances of the ratio from 1, 0 < clip_low <= 1 and clip_high > 0, such as 0.2 and 0.2",
        lambda clip_low, clip_high: 0 < clip_low <= 1 and clip_high > 0,
        clip_low=clip_low,
        clip_high=clip_high,
    )


def _ratio_and_advantages(name, logprobs, credit):
    return jnp.exp(log_ratio(logprobs.policy, fact(name, logprobs, "old"))), advantages_of(name, credit)
