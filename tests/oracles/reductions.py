"""Measures over tokens, counted token by token in float64."""

import numpy as np


def token_mean(mask):
    """Every masked token weighs 1 / (all masked tokens)."""
    total = sum(1 for i in np.ndindex(*mask.shape) if mask[i])
    weights = np.zeros(mask.shape)
    for i in np.ndindex(*mask.shape):
        if mask[i]:
            weights[i] = 1.0 / total
    return weights


def sequence_mean(mask):
    """Every masked token weighs 1 / (rows with a token) / (tokens of its row)."""
    p, g, t = mask.shape
    rows = [(i, j) for i in range(p) for j in range(g) if mask[i, j].any()]
    weights = np.zeros(mask.shape)
    for i, j in rows:
        own = sum(1 for k in range(t) if mask[i, j, k])
        for k in range(t):
            if mask[i, j, k]:
                weights[i, j, k] = 1.0 / len(rows) / own
    return weights


def constant(mask, length):
    """Every masked token weighs 1 / (rows with a token) / length."""
    p, g, t = mask.shape
    rows = [(i, j) for i in range(p) for j in range(g) if mask[i, j].any()]
    weights = np.zeros(mask.shape)
    for i, j in rows:
        for k in range(t):
            if mask[i, j, k]:
                weights[i, j, k] = 1.0 / len(rows) / length
    return weights
