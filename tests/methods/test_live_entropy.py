"""The live entropy bonus against its oracle, by policy and by entropy, and what it is beside the detached one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from rlagents.methods import (
    MethodError,
    chain,
    clipped_surrogate,
    entropy_bonus,
    exploration,
    group_advantage,
    masked,
    method,
    policy_gradient,
    token_mean,
    with_live_entropy_bonus,
)
from tests.methods.batches import laws, make_batch
from tests.methods.harness import assert_close, run
from tests.methods.test_filters import clean
from tests.methods.test_oracles import computed, drawn, precisions
from tests.oracles import exploration as oracle
from tests.oracles import reductions

WHICH = exploration.after_successful_call


def of(*stages):
    return method(chain(group_advantage(ddof=0, epsilon=1e-6), *stages), token_mean())


LIVE = of(with_live_entropy_bonus(policy_gradient(), 0.3, which=WHICH, top_fraction=0.5))


@precisions
@laws
@given(batch=drawn(spread=0.3))
def test_live_bonus(tolerance, batch):
    logprobs, rewards, masks = batch
    out = computed(LIVE, batch, tolerance)
    mask = masks.trainable
    gate = oracle.after_calls(clean(rewards, masks).turn_tool_successes, masks.turn, mask)
    gate &= oracle.top(logprobs.entropy, mask, 0.5)
    terms, by_policy, by_entropy = oracle.live(
        logprobs.policy, out.credit.advantages, logprobs.entropy, gate, mask, 0.3, 1e-8
    )
    weights = reductions.token_mean(mask)
    assert_close(out.loss, (weights * terms).sum(), relative=tolerance, floor=np.abs(weights * terms).sum() + 1e-3)
    assert_close(out.gradients[0].policy, weights * by_policy, relative=tolerance, floor=1e-3)
    assert_close(out.gradients[0].entropy, weights * by_entropy, relative=tolerance, floor=1e-2)


@laws
@given(batch=drawn(spread=0.3))
def test_where_live_and_old_entropy_agree_only_the_gradient_by_entropy_is_new(batch):
    logprobs, rewards, masks = batch
    batch = (replace(logprobs, old_entropy=logprobs.entropy), rewards, masks)
    live, detached = (computed(a_method, batch, 1e-12) for a_method in (PPO_LIVE, PPO_DETACHED))
    assert_close(live.loss, detached.loss, relative=1e-12, floor=1)
    assert_close(live.gradients[0].policy, detached.gradients[0].policy, relative=1e-12, floor=1)
    assert (detached.gradients[0].entropy == 0).all()
    gated = oracle.after_calls(clean(rewards, masks).turn_tool_successes, masks.turn, live.credit.mask)
    rows = (gated & (live.credit.advantages != 0)).any(-1)
    assert not live.gradients[0].entropy[~rows].any()


PPO_LIVE = of(with_live_entropy_bonus(clipped_surrogate(0.2, 0.2), 0.3, which=WHICH))
PPO_DETACHED = of(entropy_bonus(0.3, which=WHICH), clipped_surrogate(0.2, 0.2))


def test_marks_are_kept_where_a_masked_surrogate_applies():
    batch = make_batch(1, invalid=0.0)
    first = masked(with_live_entropy_bonus(policy_gradient(), 0.3, which=exploration.everywhere), lambda m: m.turn == 0)
    credit = run(of(first), batch).credit
    (mark,) = credit.marks.values()
    np.testing.assert_array_equal(mark, credit.mask & (batch[2].turn == 0))


def test_what_makes_no_live_bonus_is_refused():
    two = chain(policy_gradient(), clipped_surrogate(0.2, 0.2))
    for part in (group_advantage(ddof=0, epsilon=0), two):
        with pytest.raises(MethodError, match=r"takes one surrogate, such as .*put other stages beside it"):
            with_live_entropy_bonus(part, 0.1, which=WHICH)
    with pytest.raises(ValueError, match=r"with_live_entropy_bonus.top_fraction=1.5"):
        with_live_entropy_bonus(policy_gradient(), 0.1, which=WHICH, top_fraction=1.5)
    logprobs, rewards, masks = make_batch(0)
    with pytest.raises(MethodError, match=r"reads LogProbs.entropy, which is None"):
        LIVE(replace(logprobs, entropy=None), rewards, masks)
