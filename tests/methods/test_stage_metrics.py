"""What stages report is what they say it is; and a few edges of stages that random batches seldom meet."""

import jax.numpy as jnp
import numpy as np
import pytest

from rlagents.methods import (
    calibration,
    centered_advantage,
    chain,
    clipped_surrogate,
    condition_advantage,
    exploration,
    group_advantage,
    kl_in_reward,
    method,
    mute,
    mute_turn_beginnings,
    predicates,
    sequence_surrogate,
    soften_negative_turns,
    specimen,
    token_mean,
    truncated_sequence_weights,
)
from tests.methods.batches import make_batch
from tests.methods.harness import run, values
from tests.oracles import surrogates as oracle

BATCH = make_batch(21, (6, 4, 12, 3), rewards="binary", invalid=0.2, spread=0.3)
LOGPROBS, REWARDS, MASKS = BATCH


def reported(*stages, surrogate=None):
    out = run(method(chain(*stages, surrogate or clipped_surrogate(0.2, 0.2)), token_mean()), BATCH)
    return values(out.metrics), out


def test_kl_in_reward():
    found, _ = reported(kl_in_reward(0.1), centered_advantage())
    distance = np.where(MASKS.trainable, LOGPROBS.old.astype(float) - LOGPROBS.reference, 0).sum(-1)
    assert found["kl_in_reward"] == pytest.approx(distance[MASKS.valid].mean(), rel=1e-5)


def test_softened():
    found, _ = reported(group_advantage(ddof=0, epsilon=1e-6), soften_negative_turns())
    _, plain = reported(group_advantage(ddof=0, epsilon=1e-6))
    bad = MASKS.trainable & (plain.credit.advantages < 0) & (MASKS.turn < MASKS.num_turns[..., None] - 1)
    scores = np.take_along_axis(REWARDS.turn_scores, np.maximum(MASKS.turn, 0), -1)
    assert found["softened"] == pytest.approx(scores[bad].mean(), rel=1e-5)


def test_clip_fraction_of_a_sequence():
    found, out = reported(group_advantage(ddof=0, epsilon=1e-6), surrogate=sequence_surrogate(0.05, 0.05))
    _, slopes = oracle.sequence(
        LOGPROBS.policy, LOGPROBS.old, out.credit.advantages, MASKS.trainable, clip_low=0.05, clip_high=0.05, bound=20.0
    )
    still = MASKS.trainable & (slopes == 0) & (out.credit.advantages != 0)
    assert 0 < still.sum() < MASKS.trainable.sum()
    assert found["clip_fraction"] == pytest.approx(still.sum() / MASKS.trainable.sum(), rel=1e-5)


def test_zero_variance_conditions():
    found, _ = reported(condition_advantage(ddof=0, epsilon=1e-6))
    alike = [
        len({float(r) for r, v, c in zip(REWARDS.outcome[i], MASKS.valid[i], MASKS.condition[i]) if v and c == mine})
        == 1
        for i, j in zip(*np.nonzero(MASKS.valid))
        for mine in [MASKS.condition[i, j]]
    ]
    assert 0 < np.mean(alike) < 1
    assert found["zero_variance_conditions"] == pytest.approx(np.mean(alike), rel=1e-5)


def test_sequence_weights_sum_over_trained_tokens_only():
    """Muted tokens were drawn too, but nothing is made up for on them."""
    first = mute_turn_beginnings(1)
    _, out = reported(first, centered_advantage(), truncated_sequence_weights(1e6))
    _, plain = reported(first, centered_advantage())
    total = np.where(out.credit.mask, LOGPROBS.old.astype(float) - LOGPROBS.rollout, 0).sum(-1, keepdims=True)
    np.testing.assert_allclose(out.credit.advantages, plain.credit.advantages * np.exp(total), rtol=1e-4)


def test_a_score_at_the_threshold_is_spared():
    stage = soften_negative_turns(calibration.wholly_from(0.75))
    assert specimen.advantages(stage) == [[1.0, 1.0, 1.0], [0.0, 0.0, -1.0]]


def test_scores_beyond_their_range_flip_no_sign():
    scores = [[[2.0, 2.0], [2.0, -3.0]]]
    assert specimen.advantages(soften_negative_turns(), turn_scores=scores) == [[1.0, 1.0, 1.0], [0.0, 0.0, -1.0]]


def test_a_share_of_tokens_that_comes_out_whole_is_not_rounded_up():
    entropy = jnp.arange(25.0)[None, None]
    assert exploration.highest(entropy, entropy >= 0, 0.28).sum() == 7


def test_a_reward_that_is_none_is_seen_and_not_dropped():
    nan = [[float("nan"), 0.0]]
    for which in (predicates.uniform_groups, predicates.pass_rate_outside(0.0, 1.0)):
        assert specimen.trained(mute(which), outcome=nan) == [[1, 1, 1], [1, 1, 1]]
