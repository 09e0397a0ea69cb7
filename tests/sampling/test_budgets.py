"""Limits of a turn and of a member are never exceeded, and what cannot be done is refused at the border."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from rlagents.sampling import StopReason, StreamKey
from tests.effort import draws
from tests.sampling.support import CONFIG, KEYS, Script, check_member, make_sampler, play

ROOM = 32


@pytest.fixture(scope="module")
def sampler():
    return make_sampler()


@settings(max_examples=draws(15), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 6)), min_size=1, max_size=6))
def test_no_budget_is_ever_exceeded(sampler, turns):
    """Each turn asks for some tokens, then gets a reply if there is room for it."""
    group = sampler.open_group([[1, 2, 3, 4], [1, 2, 7]], KEYS)
    row, total = group.rows[0], 3
    for wanted, reply in turns:
        assert sampler.room(row) == ROOM - total
        sampler.request(row, wanted)
        (turn,) = run(sampler)
        got, room = len(turn.token_ids), ROOM - total
        assert got == min(wanted, room)
        assert turn.stop_reason is (StopReason.LENGTH if wanted < room else StopReason.BUDGET)
        total += got
        if reply <= ROOM - total:
            sampler.append(row, [5] * reply)
            total += reply
        else:
            with pytest.raises(ValueError, match="has room for"):
                sampler.append(row, [5] * reply)
    sampler.close_group(group)


def run(sampler):
    for _ in range(100):
        if turns := sampler.step():
            return turns
    raise AssertionError("no turn ended")


def test_the_last_tokens_of_a_full_member_are_right():
    (members,) = play(make_sampler(), [Script([[1, 2, 3], [1, 2, 4, 5]], KEYS, max_new_tokens=50)])
    assert {len(member.conversation) for member in members} == {1 + ROOM}
    reasons = [[turn.stop_reason for _, turn in member.turns] for member in members]
    assert reasons == [[StopReason.BUDGET]] * 2
    assert sum(check_member(member) for member in members) == 2 * ROOM - 2 - 3


@pytest.mark.parametrize(
    ("wanted", "reason"), [(28, StopReason.LENGTH), (29, StopReason.BUDGET), (30, StopReason.BUDGET)]
)
def test_a_member_that_becomes_full_is_out_of_budget(sampler, wanted, reason):
    group = sampler.open_group([[1, 2, 3], [2]], KEYS)
    sampler.request(group.rows[0], wanted)
    (turn,) = run(sampler)
    assert (len(turn.token_ids), turn.stop_reason) == (min(wanted, 29), reason)
    sampler.close_group(group)


def test_a_member_without_room_gets_an_empty_turn(sampler):
    group = sampler.open_group([[1, 2, 3]], KEYS)
    sampler.append(group.rows[0], [4] * (ROOM - 1))
    sampler.request(group.rows[0], 5)
    (turn,) = sampler.step()
    assert (turn.token_ids, turn.log_probs, turn.text) == ([], [], "")
    assert turn.stop_reason is StopReason.BUDGET
    sampler.close_group(group)


@pytest.mark.parametrize(
    ("prompts", "keys", "message"),
    [
        ([], KEYS, "at least one member"),
        ([[1], []], KEYS, "member 1 is empty"),
        ([[1] * 18] * 2, KEYS, "17 tokens; max_prefix_tokens is 16"),
        ([[1], [2] * 32], KEYS, "member 1 has 32 prompt tokens.*max_member_tokens is 32"),
        ([[1]] * 7, KEYS, "7 members.*6 rows"),
        ([[1, CONFIG.vocab_size]], KEYS, "member 0: token id 29 is outside"),
        ([[-1]], KEYS, "token id -1 is outside"),
        ([[1]], StreamKey(0, -1, 0, 0), "run=-1 is outside"),
        ([[1]], StreamKey(0, 0, 0, 2**32), "stream=4294967296 is outside"),
    ],
)
def test_groups_that_can_never_be_sampled_are_refused(sampler, prompts, keys, message):
    with pytest.raises(ValueError, match=message):
        sampler.open_group(prompts, keys)
    assert sampler.can_open(6), "a refused group holds nothing"


def test_the_longest_prompts_are_taken(sampler):
    group = sampler.open_group([[1] * 17, [1] * 17], KEYS)
    sampler.close_group(group)
    group = sampler.open_group([[1], [2] * 31], KEYS)
    sampler.request(group.rows[1], 1)
    (turn,) = run(sampler)
    assert len(turn.token_ids) == 1
    sampler.close_group(group)


def test_rows_that_are_busy_or_closed_are_refused(sampler):
    group = sampler.open_group([[1, 2], [1, 3]], KEYS)
    row = group.rows[0]
    with pytest.raises(ValueError, match="max_new_tokens is 0"):
        sampler.request(row, 0)
    with pytest.raises(ValueError, match=r"row \d: token id 99"):
        sampler.append(row, [99])
    sampler.request(row, 30)
    for call in (lambda: sampler.request(row, 1), lambda: sampler.append(row, [1])):
        with pytest.raises(RuntimeError, match="busy"):
            call()
    with pytest.raises(RuntimeError, match="open"):
        sampler.generate([[1]], 1)
    sampler.close_group(group)
    for number in (row, -1, 6):
        with pytest.raises(RuntimeError, match="no open group"):
            sampler.request(number, 1)
    with pytest.raises(RuntimeError, match="closed once"):
        sampler.close_group(group)
    assert sampler.step() == []


def test_a_group_that_does_not_fit_now_is_refused_and_fits_later(sampler):
    groups = [sampler.open_group([[1]] * 3, KEYS), sampler.open_group([[1]] * 2, KEYS)]
    assert not sampler.can_open(1), "no slot"
    with pytest.raises(RuntimeError, match="0 slots and 1 rows are free"):
        sampler.open_group([[1]], KEYS)
    sampler.close_group(groups[0])
    assert sampler.can_open(4)
    assert not sampler.can_open(5)
    sampler.close_group(groups[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decode_rows": 7}, "decode_rows=7 is more than num_rows=6; give at most 6"),
        ({"extend_rows": 7}, "extend_rows=7 is more than num_rows=6"),
        ({"prefill_groups": 3}, "prefill_groups=3 is more than num_groups=2"),
        ({"num_groups": 0}, "num_groups is 0"),
        ({"block_steps": 0}, "block_steps is 0"),
        ({"num_rows": "abc"}, "num_rows is 'abc'; give a whole number >= 1"),
        ({"extend_rows": 2.0}, "extend_rows is 2.0; give a whole number >= 1"),
        ({"max_member_tokens": True}, "max_member_tokens is True"),
        ({"decode_rows": float("nan")}, "decode_rows is nan"),
        ({"max_prefix_tokens": -1}, "max_prefix_tokens is -1"),
        ({"stop_token_ids": (29,)}, "stop_token_ids: token id 29"),
        ({"stop_strings": ("a", "")}, "stop string is empty"),
    ],
)
def test_impossible_samplers_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make_sampler(**changes)
