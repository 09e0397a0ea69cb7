"""Attention and the head's statistics in NumPy float64, straight from their definitions."""

import numpy as np


def attention(query, query_position, keys, values, key_positions, *, scale, window=None):
    """Softmax attention of one head over lists of sources ``[s k]`` with positions ``[s]``: ``[q k]`` to ``[q k]``."""
    key = np.concatenate(keys).astype(np.float64)
    value = np.concatenate(values).astype(np.float64)
    position = np.concatenate(key_positions).astype(np.int64)
    distance = np.asarray(query_position, np.int64)[:, None] - position
    seen = distance >= 0
    if window is not None:
        seen &= distance < window
    logits = np.where(seen, scale * query.astype(np.float64) @ key.T, -np.inf)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ value


def log_prob_and_entropy(hidden, head, targets, temperature):
    """``hidden [n d]``, ``head [v d]``, ``targets [n]`` to log-probabilities and entropies ``[n]``."""
    z = hidden.astype(np.float64) @ head.astype(np.float64).T / temperature
    z = z - z.max(axis=1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return log_p[np.arange(len(targets)), targets], -(np.exp(log_p) * log_p).sum(axis=1)
