"""Estimators other than GRPO's, member by member in float64."""

import numpy as np


def _std(values, ddof, relative_floor):
    if len(values) <= ddof:
        return 0.0
    mean = sum(values) / len(values)
    std = np.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - ddof))
    return 0.0 if std <= relative_floor * max(abs(value) for value in values) else std


def _spread(per_member, mask):
    return np.where(mask, per_member[..., None], 0.0)


def centered(rewards, valid, mask):
    """``R - mean`` of the group."""
    out = np.zeros(valid.shape)
    for i, j in zip(*np.nonzero(valid)):
        group = [float(r) for r, v in zip(rewards[i], valid[i]) if v]
        out[i, j] = float(rewards[i, j]) - sum(group) / len(group)
    return _spread(out, mask)


def leave_one_out(rewards, valid, mask):
    """``R_i`` less the mean of the others."""
    out = np.zeros(valid.shape)
    for i, j in zip(*np.nonzero(valid)):
        others = [float(rewards[i, k]) for k in range(valid.shape[1]) if valid[i, k] and k != j]
        if others:
            out[i, j] = float(rewards[i, j]) - sum(others) / len(others)
    return _spread(out, mask)


def condition_advantage(rewards, valid, condition, mask, *, ddof, epsilon, relative_floor):
    """Standardised among the members of the group with the same condition."""
    out = np.zeros(valid.shape)
    for i, j in zip(*np.nonzero(valid)):
        alike = [
            float(rewards[i, k]) for k in range(valid.shape[1]) if valid[i, k] and condition[i, k] == condition[i, j]
        ]
        std = _std(alike, ddof, relative_floor)
        if std > 0:
            out[i, j] = (float(rewards[i, j]) - sum(alike) / len(alike)) / (std + epsilon)
    return _spread(out, mask)


def whitened(values, mask, epsilon, relative_floor):
    """All tokens of the batch against each other, population std."""
    seen = [float(v) for v in values[mask]]
    std = _std(seen, 0, relative_floor)
    out = np.zeros(mask.shape)
    if std > 0:
        mean = sum(seen) / len(seen)
        out[mask] = (values[mask] - mean) / (std + epsilon)
    return out


def returns_to_go(rewards, old, reference, mask, coefficient):
    """``R`` less the distance from this token on."""
    out = np.zeros(mask.shape)
    p, g, t = mask.shape
    for i in range(p):
        for j in range(g):
            left = float(rewards[i, j])
            for k in reversed(range(t)):
                if mask[i, j, k]:
                    left -= coefficient * (float(old[i, j, k]) - float(reference[i, j, k]))
                    out[i, j, k] = left
    return out


def turn_return_advantage(rewards, scores, num_turns, valid, mask, turn, *, discount, ddof, epsilon, relative_floor):
    """Discounted sum of what this and later turns earn, against all turns of the group."""
    p, g, t = mask.shape
    out = np.zeros(mask.shape)
    for i in range(p):
        returns = {}
        for j in range(g):
            if not valid[i, j]:
                continue
            left = 0.0
            for s in reversed(range(num_turns[i, j])):
                own = float(scores[i, j, s]) + (float(rewards[i, j]) if s == num_turns[i, j] - 1 else 0.0)
                left = own + discount * left
                returns[j, s] = left
        values = list(returns.values())
        std = _std(values, ddof, relative_floor)
        for j in range(g):
            for k in range(t):
                if mask[i, j, k] and std > 0:
                    out[i, j, k] = (returns[j, turn[i, j, k]] - sum(values) / len(values)) / (std + epsilon)
    return out
