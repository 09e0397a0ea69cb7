"""Every way to choose bucket lengths, tried one by one."""

import numpy as np


def waste(lengths, buckets):
    """Positions that hold no token when each length is padded to the smallest bucket that holds it."""
    total = 0
    for length in lengths:
        fitting = [bucket for bucket in buckets if bucket >= length]
        if not fitting:
            return np.inf
        total += min(fitting) - length
    return total


def subsets(candidates):
    """All sets of ``candidates``."""
    for code in range(2 ** len(candidates)):
        yield [candidate for place, candidate in enumerate(candidates) if code >> place & 1]


def least_waste(lengths, count, candidates):
    """The fewest positions that ``count`` of the ``candidates``, or fewer, can waste."""
    return min(waste(lengths, chosen) for chosen in subsets(candidates) if 1 <= len(chosen) <= count)


def fewest(longest, allowed, candidates):
    """How few of the ``candidates`` hold every length from 1 to ``longest`` and waste ``allowed(bucket)`` at most."""
    sizes = []
    for chosen in subsets(candidates):
        good = True
        for length in range(1, longest + 1):
            fitting = [bucket for bucket in chosen if bucket >= length]
            good = good and bool(fitting) and min(fitting) - length <= allowed(min(fitting))
        if good:
            sizes.append(len(chosen))
    return min(sizes)
