"""Penalties other than k3: terms (or sums) and slopes by ``policy``, in float64."""

import numpy as np


def k1(policy, reference, mask, *, bound):
    values, slopes = np.zeros(mask.shape), np.zeros(mask.shape)
    for at in zip(*np.nonzero(mask)):
        d = float(policy[at]) - float(reference[at])
        values[at], slopes[at] = np.clip(d, -bound, bound), float(abs(d) < bound)
    return values, slopes


def k2(policy, reference, mask, *, bound):
    values, slopes = np.zeros(mask.shape), np.zeros(mask.shape)
    for at in zip(*np.nonzero(mask)):
        d = float(policy[at]) - float(reference[at])
        values[at], slopes[at] = 0.5 * np.clip(d, -bound, bound) ** 2, d if abs(d) < bound else 0.0
    return values, slopes


def likelihood_drop(policy, old, advantages, mask, turn, chosen, *, gate):
    """Mean fall of log-likelihood over chosen tokens, gated by token, turn or trajectory; slopes likewise divided."""
    loss, slopes = 0.0, np.zeros(mask.shape)
    which = mask & chosen(np.asarray(advantages, float))
    count = which.sum()
    for i, j in np.ndindex(mask.shape[:2]):
        tokens = np.nonzero(which[i, j])[0]
        falls = [float(old[i, j, k]) - float(policy[i, j, k]) for k in tokens]
        for k, fall in zip(tokens, falls):
            together = {
                "token": [fall],
                "turn": [f for u, f in zip(tokens, falls) if turn[i, j, u] == turn[i, j, k]],
                "trajectory": falls,
            }[gate]
            if fall > 0 and sum(together) > 0:
                loss += fall / count
                slopes[i, j, k] = -1.0 / count
    return loss, slopes


def adapted(coefficient, distance, target, horizon):
    """The next coefficient."""
    return coefficient * (1 + min(max(distance / target - 1, -0.2), 0.2) / horizon)
