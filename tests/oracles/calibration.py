"""CalibAdv's two reshapers, token by token in float64."""

import numpy as np


def softened(advantages, scores, turn, mask):
    """``A (1 - c)`` where ``A < 0``, ``c`` being the score of the token's turn."""
    out = np.zeros(mask.shape)
    for i, j, k in zip(*np.nonzero(mask)):
        a = float(advantages[i, j, k])
        out[i, j, k] = a * (1 - float(scores[i, j, turn[i, j, k]])) if a < 0 else a
    return out


def rebalanced(advantages, turn, num_turns, mask, ratio):
    """Positive answer tokens of a group scaled until they weigh ``ratio`` times the negative ones."""
    out = np.where(mask, np.asarray(advantages, float), 0.0)
    p, g, t = mask.shape
    for i in range(p):
        answer = [(j, k) for j in range(g) for k in range(t) if mask[i, j, k] and turn[i, j, k] == num_turns[i, j] - 1]
        positive = sum(out[i, j, k] for j, k in answer if out[i, j, k] > 0)
        negative = -sum(out[i, j, k] for j, k in answer if out[i, j, k] < 0)
        for j, k in answer:
            if positive == 0 or negative == 0:
                out[i, j, k] = 0.0
            elif out[i, j, k] > 0:
                out[i, j, k] *= ratio * negative / positive
    return out
