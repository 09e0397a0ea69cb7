"""Ragged trajectories in, fixed shapes out, nothing lost on the way."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.facts import Outcome, TurnFacts
from rlagents.rollouts.collate import collate, padding_fraction
from rlagents.rollouts.trajectory import Trajectory
from rlagents.sampling.turns import StopReason
from rlagents.types import Kind
from tests.effort import draws

BUCKETS = {"prefix_buckets": (8, 16), "member_buckets": (32, 64), "turn_buckets": (2, 4), "pad_prompts_to": 3}


def trajectory(stream=0, member=0, prompt=(1, 2, 3), segments=((Kind.MODEL, 2),), **changes):
    """Tokens count up from 100; ``segments`` are (kind, length), every MODEL one a turn."""
    kinds, turns, turn = [], [], -1
    for kind, length in segments:
        turn += kind == Kind.MODEL
        kinds += [kind] * length
        turns += [turn if kind == Kind.MODEL else turn + 1 if kind == Kind.FORCED else -1] * length
    log_probs = [-float(i + 1) if kind == Kind.MODEL else 0.0 for i, kind in enumerate(kinds)]
    fields = {
        "task_id": f"task {stream}",
        "stream": stream,
        "member": member,
        "condition": -1,
        "prompt_ids": list(prompt),
        "token_ids": [100 + i for i in range(len(kinds))],
        "kinds": kinds,
        "turns": turns,
        "log_probs": log_probs,
        "messages": [],
        "turn_facts": [TurnFacts(0.25 * (i + 1), i + 1, i, i == 1) for i in range(turn + 1)],
        "stop_reasons": [StopReason.STOP_TOKEN] * (turn + 1),
        "outcome": Outcome(1.5, named={"depth": 3.0}),
        "truncated": False,
    }
    return Trajectory(**(fields | changes))


segments = st.lists(
    st.tuples(st.sampled_from([Kind.TOOL, Kind.MODEL, Kind.MODEL]), st.integers(1, 6)), min_size=0, max_size=4
)
groups = st.integers(1, 3).flatmap(
    lambda size: st.lists(
        st.lists(
            st.tuples(st.lists(st.integers(1, 2), min_size=1, max_size=6), segments, st.booleans()),
            min_size=size,
            max_size=size,
        ),
        min_size=1,
        max_size=3,
    )
)


@given(drawn=groups, share_prefix=st.booleans())
@settings(max_examples=draws(60), deadline=None)
def test_every_token_with_its_masks_and_facts_comes_back(drawn, share_prefix):
    batch_of = [
        [
            trajectory(stream, member, prompt, parts, truncated=flag, condition=member)
            for member, (prompt, parts, flag) in enumerate(group)
        ]
        for stream, group in enumerate(drawn)
    ]
    batch = collate(batch_of, **BUCKETS, named=["depth"], share_prefix=share_prefix)
    sequences, masks, rewards = batch.sequences, batch.masks, batch.rewards
    for row, group in enumerate(batch_of):
        prefix = list(sequences.prefix[row, : sequences.prefix_length[row]])
        common = next((i for i, ids in enumerate(zip(*[m.prompt_ids for m in group])) if len(set(ids)) > 1), None)
        common = min(len(m.prompt_ids) for m in group) if common is None else common
        assert len(prefix) == (max(common - 1, 0) if share_prefix else 0)
        for column, member in enumerate(group):
            at, n = (row, column), sequences.length[row, column]
            assert [*prefix, *sequences.tokens[at][:n]] == [*member.prompt_ids, *member.token_ids]
            own = len(member.prompt_ids) - len(prefix)
            assert own >= 1
            assert list(masks.kind[at][:n]) == [Kind.PROMPT] * own + member.kinds
            assert list(masks.turn[at][:n]) == [-1] * own + member.turns
            np.testing.assert_array_equal(batch.rollout[at][:n], [0.0] * own + member.log_probs)
            assert not sequences.tokens[at][n:].any()
            assert (masks.kind[at][n:] == Kind.PAD).all()
            assert (masks.turn[at][n:] == -1).all()
            assert not batch.rollout[at][n:].any()
            s = masks.num_turns[at]
            assert s == member.num_turns
            assert list(rewards.turn_scores[at][:s]) == member.turn_scores
            assert list(rewards.turn_tool_calls[at][:s]) == [turn.tool_calls for turn in member.turn_facts]
            assert list(rewards.turn_tool_successes[at][:s]) == [turn.tool_successes for turn in member.turn_facts]
            assert list(rewards.turn_void[at][:s]) == [turn.void for turn in member.turn_facts]
            assert not rewards.turn_scores[at][s:].any()
            assert masks.valid[at]
            assert masks.truncated[at] == member.truncated
            assert masks.condition[at] == column
            assert rewards.outcome[at] == 1.5
            assert rewards.named["depth"][at] == 3.0
    empty = slice(len(batch_of), None)
    assert not masks.valid[empty].any()
    assert not sequences.length[empty].any()
    assert (masks.kind[empty] == Kind.PAD).all()
    held = sum(len(m.prompt_ids) + len(m.token_ids) for group in batch_of for m in group)
    shared = sum(int(n) * (len(group) - 1) for group, n in zip(batch_of, sequences.prefix_length))
    positions = sequences.prefix.size + sequences.tokens.size
    assert padding_fraction(batch) == pytest.approx(1 - (held - shared) / positions)


def test_dtypes_are_the_device_s():
    batch = collate([[trajectory()]], **BUCKETS)
    assert batch.sequences.tokens.dtype == batch.masks.kind.dtype == np.int32
    assert batch.rollout.dtype == batch.rewards.outcome.dtype == np.float32
    assert batch.masks.valid.dtype == batch.rewards.turn_void.dtype == bool


# A length that spans tool output calls short answers overlong.
def test_the_length_of_a_response_is_what_the_model_wrote():
    member = trajectory(segments=[(Kind.MODEL, 2), (Kind.TOOL, 20), (Kind.MODEL, 3)])
    masks = collate([[member]], **BUCKETS).masks
    (at,) = np.nonzero(np.asarray(masks.trainable[0, 0]))
    naive_span = at[-1] - at[0] + 1
    assert naive_span == 25
    assert int(np.sum(masks.trainable[0, 0])) == 5


# Every new length is a compilation.
def test_lengths_fall_into_the_given_buckets():
    lengths = range(1, 50)
    shapes = {collate([[trajectory(segments=[(Kind.MODEL, n)])]], **BUCKETS).sequences.tokens.shape for n in lengths}
    naive = {1 + n for n in lengths}
    assert (len(shapes), len(naive)) == (2, 49)
    for name, member in [
        ("prefix", trajectory(prompt=[1] * 18)),
        ("member", trajectory(segments=[(Kind.MODEL, 64)])),
        ("turn", trajectory(segments=[(Kind.MODEL, 1), (Kind.TOOL, 1)] * 5)),
    ]:
        with pytest.raises(ValueError, match=f"longest {name} is .*{name}_buckets"):
            collate([[member]], **BUCKETS)


# Rewards reshaped by position into groups that are none.
def test_groups_are_what_their_ids_say():
    ragged = [trajectory(stream, member) for stream, size in ((0, 2), (1, 2)) for member in range(size)]
    rewards = np.array([0.0, 1.0, 0.0, 1.0])
    lost_one = np.delete(rewards, 1)  # one trajectory missing: groups by position would mix two tasks
    assert lost_one.reshape(-1, 3).std() > 0
    shifted = [ragged[1:3], [ragged[3], ragged[0]]]
    with pytest.raises(ValueError, match="one task's members in order"):
        collate(shifted, **BUCKETS)
    two_tasks = [[ragged[0], ragged[3]], [ragged[2], ragged[1]]]  # each in order, but not of one task
    with pytest.raises(ValueError, match="one task's members in order"):
        collate(two_tasks, **BUCKETS)
    with pytest.raises(ValueError, match=r"of one size, at least 1; got sizes \[1, 2\]"):
        collate([ragged[:2], ragged[2:3]], **BUCKETS)
    with pytest.raises(ValueError, match="one task's members in order"):
        collate([[ragged[1], ragged[0]]], **BUCKETS)
    with pytest.raises(ValueError, match="one stream index"):
        collate([ragged[:2], ragged[:2]], **BUCKETS)
    for nothing in ([], [[]]):
        with pytest.raises(ValueError, match="at least 1"):
            collate(nothing, **BUCKETS)


def test_lost_trajectories_are_invalid_and_need_no_outcome():
    lost = trajectory(member=1, outcome=None, lost="worker died")
    batch = collate([[trajectory(), lost]], **BUCKETS, named=["depth"])
    assert batch.masks.valid[0].tolist() == [True, False]
    assert batch.rewards.outcome[0].tolist() == [1.5, 0.0]
    assert not np.asarray(batch.masks.trainable)[0, 1].any()


def test_turn_scores_of_the_group_replace_those_of_the_turns():
    segments = [(Kind.MODEL, 1), (Kind.TOOL, 1), (Kind.MODEL, 1)]
    outcome = Outcome(1.0, turn_scores=[7.0, 8.0])
    batch = collate([[trajectory(segments=segments, outcome=outcome)]], **BUCKETS)
    assert batch.rewards.turn_scores[0, 0].tolist() == [7.0, 8.0]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e39])
def test_scores_that_are_not_finite_are_refused_where_their_task_is_known(value):
    whose = f"of task 'task 2', member 0, is {value!r}; expected a finite number".replace("+", r"\+")
    for what, changes in {
        "the outcome's reward": {"outcome": Outcome(value, named={"depth": 3.0})},
        "the fact 'depth'": {"outcome": Outcome(1.0, named={"depth": value})},
        "the score of turn 0": {"turn_facts": [TurnFacts(score=value)]},
    }.items():
        with pytest.raises(ValueError, match=f"{what} {whose}"):
            collate([[trajectory(2, **changes)]], **BUCKETS, named=["depth"])
    # A fact that is not collated may be anything.
    collate([[trajectory(outcome=Outcome(1.0, named={"depth": value}))]], **BUCKETS)


def test_callers_mistakes_are_named():
    with pytest.raises(ValueError, match="4 groups do not fit pad_prompts_to=3"):
        collate([[trajectory(stream)] for stream in range(4)], **BUCKETS)
    with pytest.raises(ValueError, match=r"no fact named 'width', only \['depth'\]"):
        collate([[trajectory()]], **BUCKETS, named=["width"])
    with pytest.raises(ValueError, match="one length"):
        dataclasses.replace(trajectory(), log_probs=[0.0])
    with pytest.raises(ValueError, match="1 model turns came with 2 turn facts"):
        dataclasses.replace(trajectory(), turn_facts=[TurnFacts(), TurnFacts()])
    with pytest.raises(ValueError, match="needs an outcome"):
        dataclasses.replace(trajectory(), outcome=None)
