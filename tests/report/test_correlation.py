"""Correlations are those of their definitions, whatever the numbers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlagents.report.correlation import correlation, pearson, ranks, spearman
from tests.oracles import correlation as oracle

# On a grid, so that the oracle's rounding is small beside every difference.
NUMBERS = st.integers(-50, 50).map(lambda number: number / 8)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=30)


def close(found, wanted):
    return found is wanted is None or found == pytest.approx(wanted, abs=1e-12)


@given(PAIRS)
def test_they_are_the_oracles(pairs):
    x, y = [one for one, _ in pairs], [other for _, other in pairs]
    assert ranks(x) == oracle.ranks(x)
    assert close(pearson(x, y), oracle.pearson(x, y))
    assert close(spearman(x, y), oracle.spearman(x, y))


@given(PAIRS, st.floats(0.1, 10), st.floats(-10, 10))
def test_they_know_no_units_and_no_order(pairs, scale, shift):
    x, y = [one for one, _ in pairs], [other for _, other in pairs]
    for of in (pearson, spearman):
        assert close(of(y, x), of(x, y))
        assert of([scale * one for one in x], y) == pytest.approx(of(x, y), abs=1e-9)
        turned = of([-one for one in x], y)
        assert turned == (None if of(x, y) is None else pytest.approx(-of(x, y), abs=1e-9))
    if len({one + shift for one in x}) == len(set(x)):  # else rounding has made equal what was not
        assert pearson([one + shift for one in x], y) == pytest.approx(pearson(x, y), abs=1e-9)
    assert close(spearman([math.exp(one) for one in x], y), spearman(x, y))


@given(st.lists(NUMBERS, min_size=3, max_size=20).filter(lambda values: len(set(values)) > 1))
def test_what_is_compared_with_itself_goes_together(values):
    assert pearson(values, values) == pytest.approx(1)
    assert spearman(values, values) == pytest.approx(1)


def test_numbers_whose_squares_no_float_holds():
    x = [1.7e308, -1.7e308, 1e-300]
    assert pearson(x, [2.0, 0.0, 1.0]) == pytest.approx(1)
    assert pearson([value * 1e-320 for value in (1, 2, 3)], [1.0, 2.0, 3.0]) == pytest.approx(1, abs=1e-3)


def test_steps_without_a_number_are_left_out():
    rows = [{"a": step, "b": -step} for step in range(4)]
    rows += [{"a": "nan", "b": 1}, {"a": 7}, {}, {"a": 1, "b": None}, {"a": float("inf"), "b": 1}]
    assert correlation(rows, "a", "b") == {"n": 4, "pearson": -1.0, "spearman": -1.0}
    assert correlation(rows[:2] + rows[4:], "a", "b") is None
    assert correlation([{"a": 1, "b": step} for step in range(3)], "a", "b") == {
        "n": 3,
        "pearson": None,
        "spearman": None,
    }


def test_a_known_value():
    """Anscombe's first set."""
    x = [10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5]
    y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]
    assert pearson(x, y) == pytest.approx(0.81642, abs=1e-5)
    assert spearman(x, y) == pytest.approx(0.81818, abs=1e-5)
    assert np.corrcoef(x, y)[0, 1] == pytest.approx(pearson(x, y))


def test_pairs_are_asked_for():
    with pytest.raises(ValueError, match="of pairs, found 3 and 2"):
        pearson([1, 2, 3], [1, 2])
