"""Student's 95% interval of a mean, the quantile by integrating the density and bisecting."""

import numpy as np


def area(degrees, until):
    """Under ``(1 + x^2 / degrees)^(-(degrees + 1) / 2)`` from 0 to ``tan(until)``, by ``x = tan(angle)``."""
    angles = np.linspace(0.0, until, 20_001)
    x = np.tan(angles)
    heights = (1 + x**2 / degrees) ** (-(degrees + 1) / 2) * (1 + x**2)
    return np.sum((heights[1:] + heights[:-1]) / 2 * np.diff(angles))


def quantile(degrees):
    """``t`` with ``P(-t <= T <= t) = 0.95``."""
    whole = area(degrees, np.pi / 2 - 1e-9)
    low, high = 0.0, np.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if area(degrees, middle) > 0.95 * whole else (middle, high)
    return np.tan(low)


def interval(values):
    """(mean, half the width)"""
    n = len(values)
    mean = sum(values) / n
    variance = sum((value - mean) ** 2 for value in values) / (n - 1)
    return mean, quantile(n - 1) * np.sqrt(variance / n)
