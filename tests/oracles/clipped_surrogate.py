"""PPO's clipped surrogate and its derivative, token by token in float64."""

import numpy as np


def clipped_surrogate(policy, old, advantages, mask, *, clip_low, clip_high, bound):
    """Terms, their derivative with respect to policy, and the share of masked tokens where the clip binds."""
    terms, slopes = np.zeros(mask.shape), np.zeros(mask.shape)
    clipped = 0
    for i in np.ndindex(*mask.shape):
        if not mask[i]:
            continue
        difference = float(policy[i]) - float(old[i])
        ratio = np.exp(min(max(difference, -bound), bound))
        advantage = float(advantages[i])
        limited = min(max(ratio, 1 - clip_low), 1 + clip_high)
        terms[i] = -min(ratio * advantage, limited * advantage)
        if advantage > 0:
            binds = ratio > 1 + clip_high
        elif advantage < 0:
            binds = ratio < 1 - clip_low
        else:
            binds = False
        clipped += binds
        if not binds and abs(difference) < bound:
            slopes[i] = -ratio * advantage
    return terms, slopes, clipped / max(mask.sum(), 1)
