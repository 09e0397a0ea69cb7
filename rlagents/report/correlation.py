"""How two metrics of a run go together: Pearson's and Spearman's correlation over its steps."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

FEWEST = 3
"""Pairs; of two, every correlation is 1 or -1."""


def correlation(rows: Iterable[Mapping[str, Any]], one: str, other: str) -> dict[str, Any] | None:
    """``{"n", "pearson", "spearman"}`` over the rows where both are finite numbers; None if they are fewer than 3.

    A correlation is None where one of the metrics never changes.
    """
    pairs = [(_finite(row.get(one)), _finite(row.get(other))) for row in rows]
    found = [(x, y) for x, y in pairs if x is not None and y is not None]
    if len(found) < FEWEST:
        return None
    x, y = zip(*found)
    return {"n": len(found), "pearson": _short(pearson(x, y)), "spearman": _short(spearman(x, y))}


def pearson(x: Sequence[float], y: Sequence[float]) -> float | None:
    """``sum (x - mean x)(y - mean y) / sqrt(sum (x - mean x)^2 sum (y - mean y)^2)``, in [-1, 1].

    None for fewer than three pairs, and where all of ``x`` or all of ``y`` are equal. Raises ValueError where they
    differ in length.
    """
    if len(x) != len(y):
        raise ValueError(f"a correlation is of pairs, found {len(x)} and {len(y)} numbers")
    if len(x) < FEWEST or len(set(x)) == 1 or len(set(y)) == 1:
        return None
    (of_x, x_size), (of_y, y_size) = _centred(x), _centred(y)
    if not x_size or not y_size:
        return None
    return max(-1.0, min(1.0, math.fsum(a * b for a, b in zip(of_x, of_y)) / (x_size * y_size)))


def spearman(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Pearson's of the ranks; what is equal shares the mean of its ranks. None and ValueError as ``pearson``."""
    return pearson(ranks(x), ranks(y))


def ranks(values: Sequence[float]) -> list[float]:
    """1 for the smallest; the mean of their ranks for equal ones."""
    found, before = [0.0] * len(values), 0
    for _, same in groupby(sorted(range(len(values)), key=values.__getitem__), key=values.__getitem__):
        places = list(same)
        for place in places:
            found[place] = before + (len(places) + 1) / 2
        before += len(places)
    return found


def _centred(values: Sequence[float]) -> tuple[list[float], float]:
    """Differences from the mean, in units of the largest, and their Euclidean length: no square is beyond a float."""
    largest = max(map(abs, values))
    mean = math.fsum(value / largest for value in values) / len(values)
    centred = [value / largest - mean for value in values]
    return centred, math.hypot(*centred)


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
