"""Entropy bonuses, token by token in float64."""

import numpy as np


def after_calls(counts, turn, mask):
    """Tokens whose turn follows one with a count above 0."""
    out = np.zeros(mask.shape, bool)
    for i, j, k in zip(*np.nonzero(mask)):
        s = turn[i, j, k]
        out[i, j, k] = s > 0 and counts[i, j, s - 1] > 0
    return out


def scores(entropy, mask, over, epsilon):
    """``(H - mean) / (std + epsilon)``, population std, over each trajectory or the batch."""
    out = np.zeros(mask.shape)
    p, g, t = mask.shape
    rows = [[(i, j)] for i in range(p) for j in range(g)] if over == "trajectory" else [list(np.ndindex(p, g))]
    for row in rows:
        places = [(i, j, k) for i, j in row for k in range(t) if mask[i, j, k]]
        values = np.array([float(entropy[place]) for place in places])
        if not places or values.std() <= 1e-6 * np.abs(values).max():
            continue
        for place, value in zip(places, values):
            out[place] = (value - values.mean()) / (values.std() + epsilon)
    return out


def top(entropy, mask, fraction):
    """Per trajectory, the ``ceil(fraction * n)`` tokens of most entropy (and those equal to the least of them)."""
    out = np.zeros(mask.shape, bool)
    for i, j in np.ndindex(mask.shape[:2]):
        values = sorted((float(h) for h, m in zip(entropy[i, j], mask[i, j]) if m), reverse=True)
        if values:
            least = values[int(np.ceil(round(fraction * len(values), 6))) - 1]
            out[i, j] = mask[i, j] & (np.asarray(entropy[i, j], float) >= least)
    return out


def live(policy, advantages, entropy, gate, mask, coefficient, epsilon):
    """REINFORCE with ``A (1 + coefficient * gate * z)``, z live: terms, slopes by policy, slopes by entropy."""
    terms, by_policy, by_entropy = (np.zeros(mask.shape) for _ in range(3))
    for i, j in np.ndindex(mask.shape[:2]):
        at = np.nonzero(mask[i, j])[0]
        h = np.array([float(entropy[i, j, k]) for k in at])
        alike = not len(at) or h.std() <= 1e-6 * np.abs(h).max()
        z = np.zeros(len(at)) if alike else (h - h.mean()) / (h.std() + epsilon)
        for k, score in zip(at, z):
            shaped = float(advantages[i, j, k]) * (1 + coefficient * bool(gate[i, j, k]) * score)
            terms[i, j, k], by_policy[i, j, k] = -shaped * float(policy[i, j, k]), -shaped
        if alike:
            continue
        n, std = len(at), h.std()
        for a, b in np.ndindex(n, n):
            moved = ((a == b) - 1 / n) / (std + epsilon)
            moved -= (h[a] - h.mean()) * (h[b] - h.mean()) / (n * std) / (std + epsilon) ** 2
            pushed = -float(advantages[i, j, at[a]]) * float(policy[i, j, at[a]]) * coefficient * gate[i, j, at[a]]
            by_entropy[i, j, at[b]] += pushed * moved
    return terms, by_policy, by_entropy
