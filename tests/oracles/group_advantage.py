"""Group advantage, member by member in float64."""

import numpy as np


def group_advantage(rewards, valid, mask, *, ddof, epsilon, relative_floor):
    """``(R - mean) / (std + epsilon)`` over valid members, on the mask; 0 where the group's rewards are all alike."""
    p, g, t = mask.shape
    advantages = np.zeros((p, g, t))
    for i in range(p):
        members = [j for j in range(g) if valid[i, j]]
        if len(members) <= ddof:
            continue
        mean = sum(float(rewards[i, j]) for j in members) / len(members)
        variance = sum((float(rewards[i, j]) - mean) ** 2 for j in members) / (len(members) - ddof)
        std = np.sqrt(variance)
        if std <= relative_floor * max(abs(float(rewards[i, j])) for j in members):
            continue
        for j in members:
            for k in range(t):
                if mask[i, j, k]:
                    advantages[i, j, k] = (float(rewards[i, j]) - mean) / (std + epsilon)
    return advantages
