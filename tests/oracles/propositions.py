"""Measured and bound over a run, and the standard error of their difference, by repeating every group."""

import numpy as np


def compared(measured, bound, groups):
    """(mean measured, mean bound, standard error of the difference) over all groups, in float64.

    The error is that of a mean of clusters of unequal size (steps): ratio estimator, sum of groups fixed.
    """
    measured, bound = np.asarray(measured, np.float64), np.asarray(bound, np.float64)
    groups = np.asarray(groups, np.int64)
    each = np.repeat(measured - bound, groups)
    totals = np.add.reduceat(each - each.mean(), np.cumsum(groups) - groups)
    n = len(groups)
    error = np.sqrt(n / (n - 1) * np.sum(totals**2)) / len(each) if n > 1 else None
    return np.repeat(measured, groups).mean(), np.repeat(bound, groups).mean(), error
