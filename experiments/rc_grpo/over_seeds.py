"""What several runs of one kind say of it: the mean over seeds, and how sure it is."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats


class OverSeeds(NamedTuple):
    """Mean over seeds and half the width of its 95% interval; NaN for that of a single seed."""

    mean: float
    half_width: float
    seeds: int

    @property
    def low(self) -> float:
        """The interval's lower bound."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """The interval's upper bound."""
        return self.mean + self.half_width

    def __str__(self) -> str:
        return f"{self.mean:.3g}" if math.isnan(self.half_width) else f"{self.mean:.3g} ± {self.half_width:.2g}"


def over_seeds(values: Sequence[float], confidence: float = 0.95) -> OverSeeds:
    """Mean and Student's interval, ``mean -+ t s / sqrt(n)``.

    ``s^2 = sum (x - mean)^2 / (n - 1)`` and ``t`` the quantile of ``(1 + confidence) / 2`` with ``n - 1`` degrees of
    freedom. Of differences of pairs it is the paired t-test. Raises ValueError for no values, one that is not finite,
    or a confidence outside (0, 1).
    """
    x = np.asarray(values, np.float64)
    if x.ndim != 1 or not x.size or not np.isfinite(x).all() or not 0 < confidence < 1:
        raise ValueError(f"values={values}, confidence={confidence}; give finite numbers, one a seed, and 0 < c < 1.")
    if x.size == 1:
        return OverSeeds(float(x[0]), math.nan, 1)
    t = stats.t.ppf((1 + confidence) / 2, x.size - 1)
    return OverSeeds(float(x.mean()), float(t * x.std(ddof=1) / math.sqrt(x.size)), x.size)
