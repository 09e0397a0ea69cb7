"""Pearson's and Spearman's correlation by their definitions, in float64."""

import numpy as np


def pearson(x, y):
    """Covariance over the product of standard deviations; None of fewer than three pairs, or where one is constant."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if len(x) < 3 or np.all(x == x[0]) or np.all(y == y[0]):
        return None
    return float(np.mean((x - x.mean()) * (y - y.mean())) / (x.std() * y.std()))


def ranks(x):
    """How many are smaller, and half of those that are equal, itself included, and half."""
    x = np.asarray(x, np.float64)
    return [float(np.sum(x < value) + (np.sum(x == value) + 1) / 2) for value in x]


def spearman(x, y):
    return pearson(ranks(x), ranks(y))
