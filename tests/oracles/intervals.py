"""The 95% interval of a share by inverting the score test: the shares that the sample does not contradict."""

import numpy as np

_Z = 1.959963984540054
"""Of a normal variable, 95% lies between minus and plus so much."""


def contradicted(share, mean, count):
    """Whether a mean of ``count`` draws lies further from ``share`` than chance carries it, 95 times in 100."""
    return abs(mean - share) > _Z * np.sqrt(share * (1 - share) / count)


def wilson(mean, count):
    """(lowest, highest) share that is not contradicted, by bisection from the mean outwards."""
    bounds = []
    for end in (0.0, 1.0):
        inside, outside = mean, end
        if not contradicted(end, mean, count):
            inside = end
        for _ in range(200):
            middle = (inside + outside) / 2
            if contradicted(middle, mean, count):
                outside = middle
            else:
                inside = middle
        bounds.append(inside)
    return tuple(bounds)
