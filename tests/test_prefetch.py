"""Prefetching changes when items are made, and nothing else."""

import itertools
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlagents.data.prefetch import prefetched


@given(st.lists(st.integers() | st.none()), st.integers(1, 5))
def test_the_same_items_in_the_same_order(items, ahead):
    assert list(prefetched(iter(items), ahead)) == items


def test_items_are_made_ahead_and_no_further():
    made = []
    numbers = prefetched((made.append(k) or k for k in itertools.count()), ahead=2)
    assert next(numbers) == 0
    for _ in range(100):
        if len(made) == 3:
            break
        time.sleep(0.01)
    time.sleep(0.05)
    # The one that was given, and two ahead.
    assert made == [0, 1, 2]
    numbers.close()


def test_an_error_comes_out_in_its_place():
    def failing():
        yield 1
        raise KeyError("broken item")

    numbers = prefetched(failing(), ahead=3)
    assert next(numbers) == 1
    with pytest.raises(KeyError, match="broken item"):
        next(numbers)


def test_closing_ends_the_thread():
    numbers = prefetched(itertools.count())
    next(numbers)
    assert any(thread.name.startswith("prefetch") for thread in threading.enumerate())
    numbers.close()
    assert not any(thread.name.startswith("prefetch") for thread in threading.enumerate())


def test_nothing_ahead_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        next(prefetched(iter([1]), ahead=0))
