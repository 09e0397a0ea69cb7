"""Importance weights between learner and sampler, in float64."""

import numpy as np


def token_weights(old, rollout, mask, bound):
    """``exp(old - rollout)``, the difference clamped."""
    out = np.zeros(mask.shape)
    for i, j, k in zip(*np.nonzero(mask)):
        out[i, j, k] = np.exp(np.clip(float(old[i, j, k]) - float(rollout[i, j, k]), -bound, bound))
    return out


def sequence_weights(old, rollout, mask, bound):
    """``exp`` of the sum over the trajectory's tokens, at each of them."""
    out = np.zeros(mask.shape)
    p, g, t = mask.shape
    for i in range(p):
        for j in range(g):
            total = sum(float(old[i, j, k]) - float(rollout[i, j, k]) for k in range(t) if mask[i, j, k])
            out[i, j, mask[i, j]] = np.exp(np.clip(total, -bound, bound))
    return out
