"""A rollout that went through a checkpoint is the rollout."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.facts import Outcome, TurnFacts
from rlagents.rollouts.driver import Rollout, Skipped
from rlagents.rollouts.stored import from_document, to_document
from rlagents.sampling.turns import StopReason
from rlagents.types import Kind
from tests.effort import draws
from tests.rollouts.test_collate import segments, trajectory

numbers = st.floats(allow_nan=False)
outcomes = st.builds(
    Outcome,
    numbers,
    st.none() | st.lists(numbers, max_size=3),
    st.dictionaries(st.text(max_size=3), numbers, max_size=2),
)


@st.composite
def members(draw):
    parts = draw(segments)
    turns = sum(kind == Kind.MODEL for kind, _ in parts)
    tokens = sum(length for _, length in parts)
    return trajectory(
        stream=draw(st.integers(0, 2**32)),
        segments=parts,
        condition=draw(st.integers(-1, 1)),
        # As the sampler recorded them, in float32.
        log_probs=[float(np.float32(draw(st.floats(-20, 0)))) for _ in range(tokens)],
        messages=[{"role": "user", "content": draw(st.text(max_size=5)), "name": None}],
        turn_facts=[TurnFacts(draw(numbers), draw(st.integers(0, 3)), 1, draw(st.booleans())) for _ in range(turns)],
        stop_reasons=[draw(st.sampled_from(StopReason)) for _ in range(turns)],
        weight_versions=draw(st.sampled_from([[], [5] * turns])),
        outcome=draw(outcomes),
        lost=draw(st.none() | st.text(max_size=5)),
        truncated=draw(st.booleans()),
    )


@settings(max_examples=draws(30), deadline=None)
@given(st.lists(st.lists(members(), min_size=1, max_size=2), max_size=2), st.booleans())
def test_stored_and_read_back_it_is_the_same(groups, skips):
    skipped = [Skipped(3, "task 3", "its prompt is too long")] if skips else []
    sampled = Rollout(groups, skipped, Counter(draws=2, turns_cut=1) if skips else Counter())
    read = from_document(json.loads(json.dumps(to_document(sampled))))
    assert read == sampled
    assert isinstance(read.counts, Counter)
    assert all(isinstance(kind, Kind) for group in read.groups for member in group for kind in member.kinds)


def test_numbers_of_numpy_and_a_lost_member_are_stored_too():
    facts = [TurnFacts(np.float32(0.5), np.int64(1), np.int64(1), np.bool_(True))]
    member = trajectory(outcome=Outcome(np.float32(1.5), np.array([0.25]), {"depth": np.float64(2)}), turn_facts=facts)
    lost = trajectory(member=1, outcome=None, lost="its worker died", weight_versions=[])
    read = from_document(json.loads(json.dumps(to_document(Rollout([[member, lost]], [], Counter())))))
    assert read.groups[0][1] == lost
    assert read.groups[0][0].outcome == Outcome(1.5, [0.25], {"depth": 2.0})
    assert read.groups[0][0].turn_facts == [TurnFacts(0.5, 1, 1, True)]


def test_turns_and_their_versions_go_together():
    with pytest.raises(ValueError, match="1 model turns came with 2 weight versions; there is one a turn"):
        trajectory(weight_versions=[3, 4])
