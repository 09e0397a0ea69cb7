"""Blocks in flight: the tokens are those of a sampler that reads each block before it sends the next."""

import dataclasses

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from rlagents.sampling import StopReason, StreamKey
from rlagents.sampling.device import BlockInFlight, Device
from tests.effort import draws
from tests.sampling.support import KEYS, Script, check_member, make_params, make_sampler, play

# The same shapes as elsewhere, to share programs; fewer are decoded than are in flight.
SIZES = {"num_groups": 3, "num_rows": 8, "decode_rows": 3, "block_steps": 3, "largest_group": 4}
STOPS = {"stop_token_ids": (3, 11), "stop_strings": ("ab", "yx", "k")}

tokens = st.integers(0, 28)


@st.composite
def scripts(draw):
    """Groups of one to three members with some turns each, shorter and longer than a block."""
    return [
        Script(
            [[*shared, draw(tokens)] for _ in range(draw(st.integers(1, 3)))],
            StreamKey(0, 0, draw(st.integers(0, 99)), stream),
            draw(st.lists(st.lists(tokens, max_size=3), max_size=2)),
            draw(st.integers(1, 8)),
        )
        for stream, shared in enumerate(draw(st.lists(st.lists(tokens, max_size=4), min_size=1, max_size=5)))
    ]


def assert_same(members, others):
    for (start, turn), (other_start, other) in zip(members.turns, others.turns, strict=True):
        assert (start, turn.token_ids, turn.stop_reason, turn.text) == (
            other_start, other.token_ids, other.stop_reason, other.text
        )  # fmt: skip
        np.testing.assert_allclose(turn.log_probs, other.log_probs, atol=1e-5)


@given(scripts=scripts())
@settings(max_examples=draws(12), deadline=None)
def test_the_tokens_are_those_of_one_block_at_a_time(scripts):
    one, two = (play(make_sampler(**SIZES, **STOPS, blocks_in_flight=blocks), scripts) for blocks in (1, 2))
    for group, others in zip(one, two, strict=True):
        for member, other in zip(group, others, strict=True):
            assert_same(member, other)


def test_every_reason_to_stop_is_met_with_two_blocks_in_flight():
    """Else the property above would say less than it seems to; and the judge who knows no blocks agrees."""
    groups = [Script([[i, 1]] * 3, StreamKey(0, 5, 0, i), [[2], [4, 5]], max_new_tokens=8) for i in range(6)]
    played = play(make_sampler(**SIZES, **STOPS), groups)
    members = [member for group in played for member in group]
    assert sum(map(check_member, members)) > 200
    reasons = [turn.stop_reason for member in members for _, turn in member.turns]
    assert set(reasons) >= {StopReason.STOP_TOKEN, StopReason.STOP_STRING, StopReason.LENGTH}
    beyond = [len(turn.token_ids) % 3 for member in members for _, turn in member.turns]
    assert set(beyond) == {0, 1, 2}


@given(seed=st.integers(0, 99), steps=st.integers(1, 4))
@settings(max_examples=draws(10), deadline=None)
def test_a_group_closed_in_the_middle_of_a_block_leaves_no_trace(seed, steps):
    """Its rows go to the next group at once, whose tokens are those that it has alone."""
    sampler = make_sampler(**SIZES, **STOPS)
    closed = sampler.open_group([[7, 8, 9]] * 2, StreamKey(0, 1, seed, 0))
    kept = sampler.open_group([[5, 6]] * 2, StreamKey(0, 1, seed, 1))
    for row in closed.rows + kept.rows:
        sampler.request(row, 12)
    turns = {turn.row: turn for _ in range(steps) for turn in sampler.step()}
    sampler.close_group(closed)
    after = sampler.open_group([[1, 2, 3, 4]] * 2, StreamKey(0, 1, seed, 2))
    assert after.rows == closed.rows
    for row in after.rows:
        turns.pop(row, None)
        sampler.request(row, 12)
    while not {*kept.rows, *after.rows} <= set(turns):
        turns |= {turn.row: turn for turn in sampler.step()}
    for handle, prompt, stream in ((kept, [5, 6], 1), (after, [1, 2, 3, 4], 2)):
        ((alone, other),) = play(
            make_sampler(**SIZES, **STOPS, blocks_in_flight=1),
            [Script([prompt] * 2, StreamKey(0, 1, seed, stream), [], 12)],
        )
        for row, member in zip(handle.rows, (alone, other), strict=True):
            ((_, turn),) = member.turns
            assert dataclasses.replace(turns[row], row=0, log_probs=[]) == dataclasses.replace(
                turn, row=0, log_probs=[]
            )


@pytest.fixture
def events(monkeypatch):
    """What was sent, with the rows that are carried over; what was read."""
    seen, decode, read = [], Device.decode, BlockInFlight.read

    def sent(self, table, remaining, before, carried):
        seen.append(("send", sorted(remaining), sorted(carried)))
        return decode(self, table, remaining, before, carried)

    monkeypatch.setattr(Device, "decode", sent)
    monkeypatch.setattr(BlockInFlight, "read", lambda self: seen.append("read") or read(self))
    return seen


def test_a_block_is_sent_before_the_one_under_way_is_read(events):
    """Turns of 8 in blocks of 3; a row whose turn ends with the block under way makes way for the next."""
    for blocks in (1, 2):
        sampler = make_sampler(**SIZES, blocks_in_flight=blocks)
        group = sampler.open_group([[1, 2]] * 4, KEYS)
        for row, limit in zip(group.rows, (8, 8, 3, 3), strict=True):
            sampler.request(row, limit)
        while len(sampler._pipeline):
            sampler.step()
        sampler.close_group(group)
        events.append("end")
    first, last = [("send", [0, 1, 2], []), "read"], ["read", "end"]
    assert events == [
        *first, ("send", [0, 1, 3], []), "read", ("send", [0, 1], []), *last,
        ("send", [0, 1, 2], []), ("send", [0, 1, 3], [0, 1]), "read", ("send", [0, 1], [0, 1]), "read", *last,
    ]  # fmt: skip


def test_the_next_group_is_computed_while_a_block_is_under_way(events, monkeypatch):
    """Its prefix and given tokens go to the device before anybody waits for that block."""
    sampler = make_sampler(**SIZES)
    first = sampler.open_group([[1, 2]] * 2, KEYS)
    for row in first.rows:
        sampler.request(row, 12)
    sampler.step()
    (row,) = sampler.open_group([[1, 2, 3]], StreamKey(0, 0, 0, 1)).rows
    sampler.append(row, [4, 5])
    sampler.request(row, 12)
    events.clear()
    for name in ("prefill", "extend"):
        method = getattr(Device, name)
        monkeypatch.setattr(Device, name, lambda *args, name=name, method=method: events.append(name) or method(*args))
    sampler.step()
    assert events == ["prefill", "extend", ("send", [0, 1, 2], [0, 1]), "read"]


def test_what_nobody_waits_for_is_not_read(events):
    """A block whose turns were all dropped; the next sends do not go on from it, and new weights may come."""
    sampler = make_sampler(**SIZES)
    for version, seed in enumerate((0, 1)):
        sampler.load(make_params(seed=seed), version)
        group = sampler.open_group([[1, 2, 3]], KEYS)
        sampler.request(group.rows[0], 8)
        if version == 0:
            sampler.step()
            sampler.close_group(group)
            events.clear()
            assert sampler.step() == []
            assert events == []
    turns = []
    while not turns:
        turns = sampler.step()
    assert events[:2] == [("send", [0], []), ("send", [0], [0])]
    alone = make_sampler(**SIZES, blocks_in_flight=1, params=make_params(seed=1))
    ((member,),) = play(alone, [Script([[1, 2, 3]], KEYS, [], 8)])
    assert turns[0].token_ids == member.sampled[0]


@pytest.mark.parametrize("blocks", [0, 3, -1, "", "abc", None, True, 2.0])
def test_other_numbers_of_blocks_are_refused(blocks):
    with pytest.raises(ValueError, match=f"blocks_in_flight is {blocks!r}; give 2, or 1"):
        make_sampler(blocks_in_flight=blocks)
