"""Surrogates with one ratio a trajectory: the geometric mean of its tokens' ratios (GSPO, arXiv 2507.18071)."""

import jax.numpy as jnp

from rlagents.methods.base import Transform, advantages_of, fact, surrogate
from rlagents.methods.border import detach
from rlagents.methods.surrogates import check_clip
from rlagents.numerics import log_ratio, masked_mean
from rlagents.types import Mean


def sequence_surrogate(clip_low: float, clip_high: float) -> Transform:
    """Clip whole trajectories: ``term[t] = -min(s A[t], clip(s, 1 - clip_low, 1 + clip_high) A[t])``.

    ``s = exp(mean_t (policy - old))`` over the trajectory's trained tokens, each log-ratio clamped first. With
    ``sequence_mean`` this is GSPO, eq. 5 to 7, which reports 3e-4 and 4e-4. Gradient flows from every term of a
    trajectory into ``policy`` of all its trained tokens: ``-s mean_u A[u]`` each, where the clip does not bind; with
    one advantage a trajectory, ``-A`` at ``policy == old``. Reads ``policy``, ``old``, ``advantages``, ``mask``.
    Metrics over trajectories with trained tokens: ``sequence_ratio`` (mean), ``clip_fraction`` (share of tokens).

    Raises ValueError unless ``0 < clip_low <= 1`` and ``clip_high > 0``.

    >>> from rlagents.methods import specimen
    >>> specimen.terms(sequence_surrogate(0.3, 0.3))  # s = 1.5 ** (1 / 3) and 0.5 ** (1 / 3)
    [[-1.14, -1.14, -1.14], [0.79, 0.79, 0.79]]
    """
    return _surrogate("sequence_surrogate", clip_low, clip_high, lambda log_s, policy: log_s)


def sequence_surrogate_by_token(clip_low: float, clip_high: float) -> Transform:
    """Clip whole trajectories, but let each token's gradient carry its own advantage (GSPO-token, eq. 13 to 15).

    As :func:`sequence_surrogate` with ``s[t] = stop_gradient(s) * pi[t] / stop_gradient(pi[t])``: the same value, and
    the gradient ``-s A[t]`` at token ``t`` alone, where the clip does not bind. The form to take where reshapers give
    the tokens of a trajectory different advantages.

    >>> from rlagents.methods import soften_negative_turns, chain, specimen
    >>> specimen.slopes(chain(soften_negative_turns(), sequence_surrogate_by_token(0.3, 0.3)))
    [[-1.14, -1.14, -1.14], [0.2, 0.2, 0.79]]
    """

    def own_gradient(log_s, policy):
        return detach(log_s) + (policy - detach(policy))  # exactly 0: nothing is rounded

    return _surrogate("sequence_surrogate_by_token", clip_low, clip_high, own_gradient)


def _surrogate(name, clip_low, clip_high, log_ratios):
    check_clip(name, clip_low, clip_high)

    def loss(logprobs, credit, masks):
        advantages = advantages_of(name, credit)
        per_token = log_ratio(logprobs.policy, fact(name, logprobs, "old"))
        log_s = masked_mean(per_token, credit.mask, axis=-1, keepdims=True)
        ratio = jnp.exp(log_ratios(log_s, logprobs.policy))
        free = ratio * advantages
        bounded = jnp.clip(ratio, 1 - clip_low, 1 + clip_high) * advantages
        metrics = {
            "sequence_ratio": Mean.of(jnp.exp(log_s[..., 0]), jnp.any(credit.mask, -1)),
            "clip_fraction": Mean.of(bounded < free, credit.mask),
        }
        return -jnp.minimum(free, bounded), metrics

    return surrogate(name, loss)
