"""Surrogates: the term of the loss whose gradient is the policy gradient."""

import jax.numpy as jnp

from rlagents.methods.base import Transform, advantages_of, fact, surrogate
from rlagents.numerics import log_ratio
from rlagents.types import Mean


def clipped_surrogate(clip_low: float, clip_high: float) -> Transform:
    """Policy gradient that stops where a token's probability has moved far enough in its advantage's direction.

    ``term = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)``, ``r = exp(policy - old)`` per token ``[p g t]``, the
    log-ratio clamped before ``exp`` (:func:`rlagents.numerics.log_ratio`). PPO (arXiv 1707.06347, eq. 7) with equal
    bounds; clip-higher (DAPO, arXiv 2503.14476) with ``clip_high > clip_low``.

    Gradient flows through ``policy`` alone: ``-r A`` where the clip does not bind, 0 where it does (``A > 0`` and
    ``r > 1 + clip_high``, or ``A < 0`` and ``r < 1 - clip_low``); ``-A`` at ``policy == old``. Reads ``policy``,
    ``old``, ``advantages``. Metrics over trained tokens: ``ratio`` (mean), ``clip_fraction`` (share where it binds).

    Raises ValueError unless ``0 < clip_low <= 1`` and ``clip_high > 0``.
    """
    if not 0 < clip_low <= 1 or not clip_high > 0:
        raise ValueError(
            f"clipped_surrogate(clip_low={clip_low}, clip_high={clip_high}): expected distances of the ratio from 1,"
            " 0 < clip_low <= 1 and clip_high > 0, such as 0.2 and 0.2."
        )

    def loss(logprobs, credit, masks):
        advantages = advantages_of("clipped_surrogate", credit)
        ratio = jnp.exp(log_ratio(logprobs.policy, fact("clipped_surrogate", logprobs, "old")))
        free = ratio * advantages
        bounded = jnp.clip(ratio, 1 - clip_low, 1 + clip_high) * advantages
        metrics = {"ratio": Mean.of(ratio, credit.mask), "clip_fraction": Mean.of(bounded < free, credit.mask)}
        return -jnp.minimum(free, bounded), metrics

    return surrogate("clipped_surrogate", loss)
