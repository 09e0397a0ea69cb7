"""Student's interval of a mean over seeds: against the oracle, and against chance."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.rc_grpo.over_seeds import over_seeds
from tests.effort import draws
from tests.oracles import over_seeds as oracle


@settings(max_examples=draws(30), deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=2, max_size=9))
def test_as_the_oracle_has_it(values):
    found = over_seeds(values)
    mean, half_width = oracle.interval(values)
    assert found.seeds == len(values)
    np.testing.assert_allclose([found.mean, found.half_width], [mean, half_width], rtol=1e-5, atol=1e-9)
    assert (found.low, found.high) == (found.mean - found.half_width, found.mean + found.half_width)


def test_of_a_hundred_intervals_ninety_five_hold_the_truth():
    samples = np.random.default_rng(0).normal(3.0, 2.0, (4000, 5))
    held = [found.low <= 3.0 <= found.high for found in map(over_seeds, samples)]
    assert abs(np.mean(held) - 0.95) < 0.015


def test_a_single_seed_has_no_interval():
    found = over_seeds([0.25])
    assert found.mean == 0.25
    assert math.isnan(found.half_width)
    assert str(found) == "0.25"
    assert str(over_seeds([0.25, 0.75])) == "0.5 ± 3.2"


@pytest.mark.parametrize("values", [[], [math.nan], [1.0, math.inf], [[1.0, 2.0]]])
def test_what_is_no_list_of_numbers_is_refused(values):
    with pytest.raises(ValueError, match="finite numbers"):
        over_seeds(values)
    with pytest.raises(ValueError, match="confidence=1"):
        over_seeds([1.0, 2.0], 1.0)
