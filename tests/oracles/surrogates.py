"""Surrogates other than PPO's: terms and slopes by ``policy``, token by token in float64."""

import numpy as np


def _ratio(policy, old, bound):
    d = float(policy) - float(old)
    return np.exp(np.clip(d, -bound, bound)), abs(d) < bound


def policy_gradient(policy, old, advantages, mask, *, bound):
    terms, slopes = np.zeros(mask.shape), np.zeros(mask.shape)
    for at in zip(*np.nonzero(mask)):
        terms[at] = -float(advantages[at]) * float(policy[at])
        slopes[at] = -float(advantages[at])
    return terms, slopes


def dual_clip(policy, old, advantages, mask, *, clip_low, clip_high, most, bound):
    terms, slopes = np.zeros(mask.shape), np.zeros(mask.shape)
    for at in zip(*np.nonzero(mask)):
        a = float(advantages[at])
        r, inside = _ratio(policy[at], old[at], bound)
        free, bounded = r * a, np.clip(r, 1 - clip_low, 1 + clip_high) * a
        value = min(free, bounded)
        live = free <= bounded
        if a < 0 and most * a > value:
            value, live = most * a, False
        terms[at] = -value
        slopes[at] = -free if live and inside else 0.0
    return terms, slopes


def truncated_weight(policy, old, advantages, mask, *, clip_low, clip_high, bound):
    """CISPO."""
    terms, slopes = np.zeros(mask.shape), np.zeros(mask.shape)
    for at in zip(*np.nonzero(mask)):
        r, _ = _ratio(policy[at], old[at], bound)
        weight = np.clip(r, 1 - clip_low, 1 + clip_high)
        terms[at] = -weight * float(advantages[at]) * float(policy[at])
        slopes[at] = -weight * float(advantages[at])
    return terms, slopes


def gradient_keeping(policy, old, advantages, mask, *, clip_low, clip_high, bound):
    """AEPO: above the upper bound the value is the bound's, the slope that of ``(1 + high) A log pi``."""
    terms, slopes = np.zeros(mask.shape), np.zeros(mask.shape)
    for at in zip(*np.nonzero(mask)):
        a = float(advantages[at])
        r, inside = _ratio(policy[at], old[at], bound)
        high = r > 1 + clip_high
        kept = (1 + clip_high) if high else max(r, 1 - clip_low)
        free, bounded = r * a, kept * a
        terms[at] = -min(free, bounded)
        if free < bounded or (free == bounded and not high):
            slopes[at] = -free if inside else 0.0
        elif high:
            slopes[at] = -(1 + clip_high) * a if inside else 0.0
    return terms, slopes


def sequence(policy, old, advantages, mask, *, clip_low, clip_high, bound):
    """GSPO: one ratio a trajectory, the geometric mean of its tokens'. Slopes are of the sum of the row's terms."""
    terms, slopes = np.zeros(mask.shape), np.zeros(mask.shape)
    for i, j in np.ndindex(mask.shape[:2]):
        tokens = np.nonzero(mask[i, j])[0]
        if len(tokens) == 0:
            continue
        d = [np.clip(float(policy[i, j, k]) - float(old[i, j, k]), -bound, bound) for k in tokens]
        inside = [abs(float(policy[i, j, k]) - float(old[i, j, k])) < bound for k in tokens]
        s = np.exp(sum(d) / len(d))
        total = 0.0
        for k in tokens:
            a = float(advantages[i, j, k])
            free, bounded = s * a, np.clip(s, 1 - clip_low, 1 + clip_high) * a
            terms[i, j, k] = -min(free, bounded)
            total += free if free <= bounded else 0.0
        for k, live in zip(tokens, inside):
            slopes[i, j, k] = -total / len(tokens) if live else 0.0
    return terms, slopes


def sequence_by_token(policy, old, advantages, mask, *, clip_low, clip_high, bound):
    """GSPO-token: the trajectory's ratio in value, the token's own in slope."""
    terms, slopes = np.zeros(mask.shape), np.zeros(mask.shape)
    for i, j in np.ndindex(mask.shape[:2]):
        tokens = np.nonzero(mask[i, j])[0]
        if len(tokens) == 0:
            continue
        d = [np.clip(float(policy[i, j, k]) - float(old[i, j, k]), -bound, bound) for k in tokens]
        s = np.exp(sum(d) / len(d))
        for k in tokens:
            a = float(advantages[i, j, k])
            free, bounded = s * a, np.clip(s, 1 - clip_low, 1 + clip_high) * a
            terms[i, j, k] = -min(free, bounded)
            slopes[i, j, k] = -free if free <= bounded else 0.0
    return terms, slopes
