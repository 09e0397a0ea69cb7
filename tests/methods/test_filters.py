"""Filters and predicates against their oracles, and what dropping and muting leave to the statistics."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from rlagents.methods import (
    chain,
    clipped_surrogate,
    drop,
    group_advantage,
    method,
    mute,
    mute_turn_beginnings,
    predicates,
    token_mean,
)
from tests.methods.batches import batches, laws
from tests.methods.harness import run, values
from tests.oracles import filters as oracle

ESTIMATE = group_advantage(ddof=0, epsilon=1e-6)


def filtered(*stages):
    return method(chain(*stages, ESTIMATE, clipped_surrogate(0.2, 0.2)), token_mean())


CASES = {
    "failed_tools": (
        predicates.failed_tools,
        lambda r, m: oracle.failed_tools(r.turn_tool_calls, r.turn_tool_successes),
    ),
    "void_turns": (predicates.void_turns, lambda r, m: oracle.void_turns(r.turn_void)),
    "truncated": (predicates.truncated, lambda r, m: m.truncated),
    "uniform_groups": (predicates.uniform_groups, lambda r, m: oracle.uniform_groups(r.outcome, m.valid)),
    "pass_rate_outside": (
        predicates.pass_rate_outside(0.2, 0.8),
        lambda r, m: oracle.pass_rate_outside(r.outcome, m.valid, 0.2, 0.8),
    ),
    "few_finished": (predicates.few_finished(2), lambda r, m: oracle.few_finished(m.truncated, m.valid, 2)),
}


def clean(rewards, masks):
    """Turn facts as the border shows them: nothing beyond the last turn or of members that are not there."""
    there = (np.arange(rewards.turn_scores.shape[-1]) < masks.num_turns[..., None]) & masks.valid[..., None]
    fields = ("turn_tool_calls", "turn_tool_successes", "turn_void")
    return replace(rewards, **{field: np.where(there, getattr(rewards, field), 0) for field in fields})


DROPPING = {name: filtered(drop(predicate)) for name, (predicate, _) in CASES.items()}
MUTING = {name: filtered(mute(predicate)) for name, (predicate, _) in CASES.items()}


@pytest.mark.parametrize("name", CASES)
@laws
@given(batch=batches())
def test_predicates(name, batch):
    _, rewards, masks = batch
    out = CASES[name][1](clean(rewards, masks), masks) & masks.valid
    for chosen, verb in ((DROPPING, "dropped"), (MUTING, "muted")):
        done = run(chosen[name], batch)
        expected = masks.valid & ~out
        np.testing.assert_array_equal(done.credit.mask, masks.trainable & expected[..., None])
        np.testing.assert_array_equal(done.credit.valid, expected if verb == "dropped" else masks.valid)
        share = out.sum() / max(masks.valid.sum(), 1)
        assert values(done.metrics)[f"{verb}/{name}"] == pytest.approx(share, rel=1e-6)


def test_dropped_members_leave_the_statistics_and_muted_ones_stay(batch_of_one):
    rewards = np.array([[1.0, 0.0, 0.0, 0.0, 0.0]])
    dropped = batch_of_one(drop(predicates.truncated), rewards, truncated=[0, 0, 0, 1, 1])
    muted = batch_of_one(mute(predicates.truncated), rewards, truncated=[0, 0, 0, 1, 1])
    # Survivors [1, 0, 0] have mean 1/3 and std sqrt(2)/3; all five have mean 0.2 and std 0.4.
    np.testing.assert_allclose(dropped[0], [2**0.5, -(0.5**0.5), -(0.5**0.5), 0, 0], rtol=1e-5)
    np.testing.assert_allclose(muted[0], [2.0, -0.5, -0.5, 0, 0], rtol=1e-5)


@pytest.fixture
def batch_of_one():
    from rlagents.types import Kind, LogProbs, Masks, Rewards

    def advantages(stage, rewards, *, truncated):
        zeros = np.zeros((*rewards.shape, 1), np.float32)
        counts = zeros.astype(int)
        members = counts[..., 0]
        masks = Masks(counts + Kind.MODEL, counts, members + 1, members == 0, np.array([truncated], bool), members - 1)
        said = Rewards(rewards.astype(np.float32), zeros, counts, counts, counts.astype(bool))
        whole = filtered(stage)
        credit, _, _ = whole.credit(whole.init(), LogProbs(zeros), said, masks)
        return np.asarray(credit.advantages)[..., 0]

    return advantages


BEGINNINGS = {count: filtered(mute_turn_beginnings(count)) for count in (1, 2)}


@pytest.mark.parametrize("count", BEGINNINGS)
@laws
@given(batch=batches())
def test_turn_beginnings(count, batch):
    masks = batch[2]
    expected = masks.trainable & ~oracle.turn_beginnings(masks.kind, masks.turn, count)
    np.testing.assert_array_equal(run(BEGINNINGS[count], batch).credit.mask, expected)


def test_what_makes_no_filter_is_refused():
    with pytest.raises(ValueError, match="expected low < high"):
        predicates.pass_rate_outside(0.9, 0.1)
    with pytest.raises(ValueError, match="minimum=0"):
        predicates.few_finished(0)
    with pytest.raises(ValueError, match="num_tokens=0"):
        mute_turn_beginnings(0)
