"""CalibAdv's two reshapers, token by token in float64."""

import numpy as np


def softened(advantages, scores, turn, num_turns, mask):
    """``A (1 - c)`` where ``A < 0`` before the last turn, ``c`` being the score of the token's turn."""
    out = np.zeros(mask.shape)
    for i, j, k in zip(*np.nonzero(mask)):
        a, s = float(advantages[i, j, k]), turn[i, j, k]
        out[i, j, k] = a * (1 - float(scores[i, j, s])) if a < 0 and s < num_turns[i, j] - 1 else a
    return out


def spared_wholly(advantages, scores, turn, num_turns, mask, threshold):
    """0 where ``A < 0`` before the last turn and the turn's score reaches the threshold."""
    out = np.where(mask, np.asarray(advantages, float), 0.0)
    for i, j, k in zip(*np.nonzero(mask)):
        s = turn[i, j, k]
        if out[i, j, k] < 0 and s < num_turns[i, j] - 1 and float(scores[i, j, s]) >= threshold:
            out[i, j, k] = 0.0
    return out


def drawn_to_the_best(advantages, scores, turn, num_turns, mask):
    """Where ``A < 0`` before the last turn: between ``A`` and the group's largest, by the turn's score."""
    out = np.zeros(mask.shape)
    for i, j, k in zip(*np.nonzero(mask)):
        best = max(float(a) for a, m in zip(advantages[i].ravel(), mask[i].ravel()) if m)
        a, s = float(advantages[i, j, k]), turn[i, j, k]
        c = float(scores[i, j, s])
        out[i, j, k] = (1 - c) * a + c * best if a < 0 and s < num_turns[i, j] - 1 else a
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
