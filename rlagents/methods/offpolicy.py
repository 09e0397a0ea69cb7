"""Reshapers that make up for a sampler that is not quite the learner: importance weights on advantages.

Sampler and learner round differently, and the sampler may lag behind; tokens were drawn from ``rollout``, not from
``old``. The weight ``w = old / rollout`` makes the estimate unbiased again, and a limit keeps its variance finite. The
surrogate's own ratio stays ``policy / old``. Weights are facts: no gradient.
"""

from dataclasses import replace

import jax.numpy as jnp

from rlagents.methods.arguments import check_arguments
from rlagents.methods.base import Transform, advantages_of, fact, reshaper
from rlagents.numerics import LOG_RATIO_BOUND, log_ratio, masked_sum
from rlagents.types import Mean

_NEEDS = {"old", "rollout"}


def truncated_token_weights(limit: float) -> Transform:
    """``A[t] <- A[t] * min(w[t], limit)``, ``w[t] = exp(old[t] - rollout[t])``.

    Truncated importance sampling: Yao et al., "Your efficient RL framework secretly brings you off-policy training",
    2025, limit 2. Reads and needs ``old``, ``rollout``; reads ``advantages``; rows are treated separately. Metrics over
    trained tokens: ``rollout_weight`` (mean, before the limit), ``rollout_weights_limited`` (share).

    Raises ValueError unless ``limit`` is at least 1: a smaller one would shrink even exact agreement.

    >>> from rlagents.methods import specimen
    >>> specimen.advantages(truncated_token_weights(2.0))  # weights 1, 0.5, 1 and 1, 3, 1
    [[1.0, 0.5, 1.0], [-1.0, -2.0, -1.0]]
    """
    return _reshaper("truncated_token_weights", limit, _token_weights, jnp.minimum)


def masked_token_weights(limit: float) -> Transform:
    """``A[t] <- A[t] * w[t]`` where ``w[t] <= limit``, and 0 elsewhere: what was drawn too unluckily does not count.

    No gradient. See :func:`truncated_token_weights`, of which this is the masking form, for facts and metrics.

    >>> from rlagents.methods import specimen
    >>> specimen.advantages(masked_token_weights(2.0))
    [[1.0, 0.5, 1.0], [-1.0, 0.0, -1.0]]
    """
    return _reshaper("masked_token_weights", limit, _token_weights, _or_nothing)


def truncated_sequence_weights(limit: float) -> Transform:
    """``A[t] <- A[t] * min(W, limit)`` with the trajectory's weight ``W = exp(sum_t (old[t] - rollout[t]))``.

    The weight of whole trajectories is the unbiased one, and the one of most variance. Sums run over trained tokens.
    See :func:`truncated_token_weights` for limits, facts and metrics.

    >>> from rlagents.methods import specimen
    >>> specimen.advantages(truncated_sequence_weights(2.0))
    [[0.5, 0.5, 0.5], [-2.0, -2.0, -2.0]]
    """
    return _reshaper("truncated_sequence_weights", limit, _sequence_weights, jnp.minimum)


def masked_sequence_weights(limit: float) -> Transform:
    """``A[t] <- A[t] * W`` where ``W <= limit``, and 0 elsewhere; ``W`` as in :func:`truncated_sequence_weights`.

    >>> from rlagents.methods import specimen
    >>> specimen.advantages(masked_sequence_weights(2.0))
    [[0.5, 0.5, 0.5], [0.0, 0.0, 0.0]]
    """
    return _reshaper("masked_sequence_weights", limit, _sequence_weights, _or_nothing)


def _reshaper(name, limit, weights, limited):
    check_arguments(name, "1 or more, such as 2.0", lambda limit: limit >= 1, limit=limit)

    def credit(credit, logprobs, rewards, masks):
        weight = weights(fact(name, logprobs, "old"), fact(name, logprobs, "rollout"), credit.mask)
        advantages = advantages_of(name, credit) * limited(weight, limit)
        metrics = {
            "rollout_weight": Mean.of(weight, credit.mask),
            "rollout_weights_limited": Mean.of(weight > limit, credit.mask),
        }
        return replace(credit, advantages=advantages), metrics

    return reshaper(name, credit, _NEEDS)


def _or_nothing(weight, limit):
    return jnp.where(weight <= limit, weight, 0)


def _token_weights(old, rollout, mask):
    return jnp.exp(log_ratio(old, rollout))


def _sequence_weights(old, rollout, mask):
    total = masked_sum(old - rollout, mask, axis=-1, keepdims=True)
    return jnp.exp(jnp.clip(total, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)) * jnp.ones_like(old)
