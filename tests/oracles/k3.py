"""The k3 estimator of KL(policy || reference) and its derivative, token by token in float64."""

import numpy as np


def k3(policy, reference, mask, *, bound):
    """Values and derivatives with respect to policy; 0 off the mask."""
    values, slopes = np.zeros(mask.shape), np.zeros(mask.shape)
    for i in np.ndindex(*mask.shape):
        if not mask[i]:
            continue
        difference = float(reference[i]) - float(policy[i])
        d = min(max(difference, -bound), bound)
        values[i] = np.expm1(d) - d
        if abs(difference) < bound:
            slopes[i] = 1 - np.exp(d)
    return values, slopes
