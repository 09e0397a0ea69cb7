"""How sure a share is that was measured on so many tasks: Wilson's interval."""

import math
from statistics import NormalDist
from typing import NamedTuple


class Interval(NamedTuple):
    """Between which bounds a share lies."""

    low: float
    high: float


def wilson(mean: float, count: int, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval of a share: all ``q`` with ``|mean - q| <= z sqrt(q (1 - q) / count)``.

        (mean + z^2 / 2n -+ z sqrt(mean (1 - mean) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    with ``n`` for ``count`` and ``z`` the normal quantile of ``(1 + confidence) / 2``. Exact enough where the normal
    interval is not: near 0 and 1, and for a few tasks. Wilson, JASA 22 (1927).

    Args:
      mean: of values in [0, 1], one a task. Where these are no 0 or 1 (means over samples of a task, an F1) their
        variance is at most ``mean (1 - mean)``, so that the interval is wider than it had to be.
      count: of tasks, which are taken to be independent.
      confidence: share of such intervals that hold the truth.

    Raises:
      ValueError: no tasks, a mean outside [0, 1] or a confidence outside (0, 1).
    """
    if count < 1 or not 0 <= mean <= 1 or not 0 < confidence < 1:
        raise ValueError(
            f"mean={mean}, count={count}, confidence={confidence}; give a mean in [0, 1] of 1 task or more, and a "
            "confidence between 0 and 1."
        )
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    centre = mean + z**2 / (2 * count)
    reach = z * math.sqrt(mean * (1 - mean) / count + (z / (2 * count)) ** 2)
    whole = 1 + z**2 / count
    # Rounding must not put a bound beyond what a share can be, or beyond the mean.
    low, high = max(0.0, (centre - reach) / whole), min(1.0, (centre + reach) / whole)
    return Interval(min(low, mean), max(high, mean))
