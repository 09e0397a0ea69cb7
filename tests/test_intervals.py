"""Wilson's interval is the score test turned round, and holds the truth as often as it says."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlagents.intervals import wilson
from tests.oracles import intervals as oracle


@given(count=st.integers(1, 2000), successes=st.floats(0, 1))
@example(count=1, successes=0.0)
@example(count=80, successes=1.0)
@example(count=3, successes=1e-300)
def test_it_is_the_shares_that_the_sample_does_not_contradict(count, successes):
    found = wilson(successes, count)
    assert 0 <= found.low <= successes <= found.high <= 1
    np.testing.assert_allclose(found, oracle.wilson(successes, count), atol=1e-12)


def test_the_papers_table_in_intervals():
    """68 of 80, the best row of RC-GRPO's table; the usual example of a textbook: 0 of 10 is up to 28%."""
    assert wilson(68 / 80, 80) == pytest.approx((0.7559, 0.9121), abs=1e-4)
    assert wilson(0.0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)


def test_it_holds_the_truth_as_often_as_it_says():
    random, hits = np.random.default_rng(0), []
    for share in random.uniform(0.02, 0.98, 4000):
        low, high = wilson(random.binomial(80, share) / 80, 80, confidence=0.9)
        hits.append(low <= share <= high)
    assert np.mean(hits) == pytest.approx(0.9, abs=3 * math.sqrt(0.9 * 0.1 / 4000) + 0.005)


@pytest.mark.parametrize("wrong", [(0.5, 0), (-0.1, 5), (1.1, 5), (math.nan, 5), (0.5, 5, 0.0), (0.5, 5, 1.0)])
def test_what_is_no_share_is_refused(wrong):
    with pytest.raises(ValueError, match=r"give a mean in \[0, 1\] of 1 task or more"):
        wilson(*wrong)
