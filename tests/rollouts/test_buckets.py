"""Bucket lengths: nothing wastes less, and what bounds the waste bounds it with the fewest."""

import functools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlagents.rollouts.buckets import buckets_for, buckets_within
from tests.effort import draws
from tests.oracles import buckets as oracle

LENGTHS = st.lists(st.integers(0, 12), min_size=1, max_size=20)


@given(LENGTHS, st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=draws(60), deadline=None)
@example([5, 5, 5], 3, 1)
@example([0], 1, 1)
def test_no_buckets_waste_less(lengths, count, multiple_of):
    buckets = buckets_for(lengths, count, multiple_of=multiple_of)
    assert list(buckets) == sorted(set(buckets))
    assert 1 <= len(buckets) <= count
    assert all(bucket > 0 and bucket % multiple_of == 0 for bucket in buckets)
    candidates = range(multiple_of, 13 + multiple_of, multiple_of)
    wasted = oracle.waste(lengths, buckets)
    assert wasted == oracle.least_waste(lengths, count, candidates)
    # None is there for nothing.
    assert len(buckets) == 1 or wasted < oracle.least_waste(lengths, len(buckets) - 1, candidates)


@given(st.integers(1, 14), st.floats(0.01, 0.99), st.integers(1, 5))
@settings(max_examples=draws(60), deadline=None)
@example(8, 0.25, 1)
def test_the_waste_is_bounded_with_the_fewest_buckets(longest, most_waste, multiple_of):
    buckets = buckets_within(longest, most_waste, multiple_of=multiple_of)

    def allowed(bucket):
        return max(most_waste * bucket, multiple_of - 1)

    for length in range(1, longest + 1):
        held_by = min(bucket for bucket in buckets if bucket >= length)
        assert held_by - length <= allowed(held_by)
    assert list(buckets) == sorted(set(buckets))
    assert all(bucket % multiple_of == 0 for bucket in buckets)
    candidates = tuple(range(multiple_of, longest + multiple_of, multiple_of))
    assert len(buckets) == fewest(longest, most_waste, multiple_of, candidates)


@functools.cache
def fewest(longest, most_waste, multiple_of, candidates):
    return oracle.fewest(longest, lambda bucket: max(most_waste * bucket, multiple_of - 1), candidates)


def test_buckets_fall_geometrically():
    assert buckets_within(1024, 0.5) == (1, 3, 7, 15, 31, 63, 127, 255, 511, 1024)
    assert buckets_within(640, 0.5, multiple_of=64) == (64, 128, 192, 320, 640)


def test_a_thousand_lengths_are_quick():
    lengths = np.random.default_rng(0).geometric(0.003, 5000)
    few, many = buckets_for(lengths, 2, multiple_of=16), buckets_for(lengths, 6, multiple_of=16)
    assert oracle.waste(lengths, many) < 0.5 * oracle.waste(lengths, few)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: buckets_for([], 1), "found no lengths; give at least one"),
        (lambda: buckets_for([3, -1], 1), "found a length of -1"),
        (lambda: buckets_for([3, 1.5], 1), "found a length of 1.5; give at least one length, each a whole number"),
        (lambda: buckets_for(np.array([3.0]), 1), "found a length of "),
        (lambda: buckets_for([True], 1), "found a length of True"),
        (lambda: buckets_for("ab", 1), "found a length of 'a'"),
        *[
            (lambda count=count: buckets_for([3], count), f"count is {count!r}; give a whole number >= 1")
            for count in (True, 2.5, float("nan"), "2", None)
        ],
        (lambda: buckets_for([3], 1, multiple_of=1.5), "multiple_of is 1.5; give a whole number"),
        (lambda: buckets_within(10.7, 0.5), "longest is 10.7; give a whole number"),
        (lambda: buckets_within("8", 0.5), "longest is '8'"),
        (lambda: buckets_within(8, "0.5"), "most_waste is '0.5'; give the share"),
        (lambda: buckets_within(8, 0.5, multiple_of=float("nan")), "multiple_of is nan"),
        (lambda: buckets_for([3], 0), "count is 0; give a whole number >= 1"),
        (lambda: buckets_for([3], 1, multiple_of=0), "multiple_of is 0"),
        (lambda: buckets_within(0, 0.5), "longest is 0"),
        (lambda: buckets_within(8, 0.5, multiple_of=-8), "multiple_of is -8"),
        (lambda: buckets_within(8, 0.0), "most_waste is 0.0; give the share"),
        (lambda: buckets_within(8, 1.0), "most_waste is 1.0"),
        (lambda: buckets_within(8, float("nan")), "most_waste is nan"),
    ],
)
def test_what_makes_no_sense_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
