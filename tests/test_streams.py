"""A stream is a function of seed and position: each epoch whole, each in its own order, resumed anywhere."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.data.streams import PromptStream, StreamExhausted, endless, epoch_order, shuffled
from tests.effort import draws

sizes = st.integers(1, 40)
seeds = st.integers(0, 2**32 - 1)
quick = settings(max_examples=draws(15), deadline=None)


def tasks(stream, count):
    return [task for _, task in stream.take(count)]


@given(sizes, seeds, st.integers(1, 4))
@quick
def test_every_epoch_holds_every_task_once(size, seed, epochs):
    stream = shuffled([f"task {i}" for i in range(size)], seed=seed)
    for _ in range(epochs):
        assert sorted(tasks(stream, size)) == sorted(f"task {i}" for i in range(size))


@given(sizes, seeds, st.integers(0, 90), st.lists(st.integers(0, 30), max_size=3))
@quick
def test_resumes_exactly_anywhere(size, seed, position, counts):
    """Mid-epoch and at epoch boundaries; however the prompts were cut into batches."""
    counts = [*counts, size]
    whole = shuffled(range(size), seed=seed).take(position + sum(counts))
    resumed = shuffled(range(size), seed=seed, position=position)
    assert [pair for count in counts for pair in resumed.take(count)] == whole[position:]
    assert resumed.position == position + sum(counts)
    assert [index for index, _ in whole] == list(range(len(whole)))
    assert resumed[position] == whole[position][1]
    boundary = size * (position // size)
    assert shuffled(range(size), seed=seed, position=boundary).take(size) == whole[boundary : boundary + size]


def test_orders_are_uniform_and_independent():
    """All 6 orders of 3 tasks come equally often, over seeds and over epochs; no seed repeats another one later.

    2400 draws: 400 each, standard deviation 18.
    """
    for pairs in ([(seed, 0) for seed in range(2400)], [(0, epoch) for epoch in range(2400)]):
        orders = [tuple(epoch_order(3, *pair).tolist()) for pair in pairs]
        assert all(abs(orders.count(order) - 400) < 80 for order in set(orders))
        assert len(set(orders)) == 6
    orders = {tuple(epoch_order(20, seed, epoch).tolist()) for seed in range(40) for epoch in range(40)}
    assert len(orders) == 1600


def test_a_stream_shuffles_every_epoch_anew():
    """Four epochs of 20 tasks are four orders, and another seed starts with a fifth."""
    stream = shuffled(range(20), seed=3)
    epochs = [tuple(tasks(stream, 20)) for _ in range(4)]
    assert len({*epochs, tuple(tasks(shuffled(range(20), seed=4), 20))}) == 5


def test_orders_are_the_same_on_every_machine_and_release():
    assert epoch_order(6, 0, 0).tolist() == [5, 0, 3, 2, 1, 4]
    assert epoch_order(6, 3, 2).tolist() == [1, 5, 0, 2, 4, 3]


def test_a_shuffle_that_restarts_repeats_the_first_epoch():
    """The naive resume makes its generator anew: the epoch after the restart is the first one again."""

    def naive(seed, epochs):
        generator = random.Random(seed)
        for _ in range(epochs):
            order = list(range(20))
            generator.shuffle(order)
            yield from order

    uninterrupted = list(naive(3, 2))
    assert uninterrupted[20:] != list(naive(3, 1)), "what it should have seen, and what it sees"
    assert tasks(shuffled(range(20), seed=3, position=20), 20) == tasks(shuffled(range(20), seed=3), 40)[20:]


@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 40))
@quick
def test_a_last_epoch_ends_loudly(size, epochs, count):
    """Never a short batch, never a silent wrap to the first epoch."""
    stream = shuffled(range(size), seed=0, epochs=epochs)
    taken = 0
    while taken + count <= size * epochs:
        taken += len(stream.take(count))
    with pytest.raises(StreamExhausted, match=f"asked for {count} prompts at position {taken}"):
        stream.take(count)
    assert stream.position == taken
    with pytest.raises(IndexError):
        stream[size * epochs]
    assert shuffled(range(size), seed=0, epochs=epochs, position=size * epochs).take(0) == []


@given(st.integers(0, 2**40), st.integers(0, 20))
def test_an_endless_set_is_taken_in_order(position, count):
    class Squares:
        def __getitem__(self, index):
            return index * index

    stream = endless(Squares(), position=position)
    assert stream.take(count) == [(i, i * i) for i in range(position, position + count)]
    assert stream.length is None


def test_far_positions_cost_nothing():
    far = 10**12
    assert shuffled(range(7), seed=1, position=far).take(1)[0][0] == far


def test_what_makes_no_stream_is_refused():
    with pytest.raises(ValueError, match="the task set is empty"):
        shuffled([], seed=0)
    with pytest.raises(ValueError, match=r"must be in \[0, 2\*\*32\), found -1"):
        shuffled([1], seed=-1)
    with pytest.raises(ValueError, match="at least one epoch"):
        shuffled([1], seed=0, epochs=0)
    with pytest.raises(ValueError, match="position -1 is not in a stream"):
        endless([1], position=-1)
    with pytest.raises(ValueError, match="position 3 is not in a stream of 2"):
        PromptStream(lambda i: i, length=2, position=3)
