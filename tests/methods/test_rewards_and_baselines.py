"""Reward shapers and the estimators beside GRPO's, against their oracles."""

import numpy as np
import pytest
from hypothesis import assume, given

from rlagents.methods import (
    centered_advantage,
    chain,
    clipped_surrogate,
    condition_advantage,
    format_gate,
    group_baseline_whitened_advantage,
    kl_in_reward,
    leave_one_out_advantage,
    method,
    named_reward,
    overlong_penalty,
    token_mean,
    turn_return_advantage,
    turn_rewards,
    whitened_advantage,
)
from rlagents.methods.base import MethodError
from rlagents.numerics import RELATIVE_FLOOR
from tests.methods.batches import batches, laws, make_batch
from tests.methods.harness import assert_close, values
from tests.methods.test_oracles import computed, drawn, precisions
from tests.oracles import estimators as oracle
from tests.oracles import rewards as oracle_rewards


def whole(*stages):
    return method(chain(*stages, clipped_surrogate(0.2, 0.2)), token_mean())


SHAPED = {
    "overlong_penalty": (
        overlong_penalty(6, 4),
        lambda lp, r, m, i, j: float(r.outcome[i, j]) + oracle_rewards.overlong_penalty(m.kind[i, j], 6, 4),
    ),
    "format_gate": (
        format_gate("half"),
        lambda lp, r, m, i, j: float(r.outcome[i, j]) if r.named["half"][i, j] > 0 else 0.0,
    ),
    "named_reward": (
        named_reward("format", 0.5),
        lambda lp, r, m, i, j: float(r.outcome[i, j]) + 0.5 * float(r.named["format"][i, j]),
    ),
    "turn_rewards": (
        turn_rewards(0.5),
        lambda lp, r, m, i, j: (
            float(r.outcome[i, j]) + 0.5 * oracle_rewards.turn_sum(r.turn_scores[i, j], m.num_turns[i, j])
        ),
    ),
    "kl_in_reward": (
        kl_in_reward(0.1),
        lambda lp, r, m, i, j: (
            float(r.outcome[i, j]) - 0.1 * oracle_rewards.distance(lp.old[i, j], lp.reference[i, j], m.trainable[i, j])
        ),
    ),
}
SHAPING = {name: whole(stage, centered_advantage()) for name, (stage, _) in SHAPED.items()}


def with_half(batch):
    """A named fact that is 0 for half of the members."""
    logprobs, rewards, masks = batch
    half = np.where(masks.valid, np.round(np.nan_to_num(rewards.named["format"])), np.nan).astype(np.float32)
    return logprobs, rewards.replace(named={**rewards.named, "half": half}), masks


@precisions
@pytest.mark.parametrize("name", SHAPED)
@laws
@given(batch=drawn(spread=0.3))
def test_reward_shapers(tolerance, name, batch):
    batch = with_half(batch)
    out = computed(SHAPING[name], batch, tolerance)
    valid = batch[2].valid
    expected = np.array(
        [
            [SHAPED[name][1](*batch, i, j) if valid[i, j] else 0.0 for j in range(valid.shape[1])]
            for i in range(valid.shape[0])
        ]
    )
    assert_close(np.where(valid, out.credit.rewards, 0), expected, relative=tolerance, floor=1)


ESTIMATORS = {
    "centered": (centered_advantage(), lambda lp, r, m: oracle.centered(r.outcome, m.valid, m.trainable)),
    "leave_one_out": (
        leave_one_out_advantage(), lambda lp, r, m: oracle.leave_one_out(r.outcome, m.valid, m.trainable),
    ),
    "condition": (
        condition_advantage(ddof=1, epsilon=1e-4),
        lambda lp, r, m: oracle.condition_advantage(
            r.outcome, m.valid, m.condition, m.trainable, ddof=1, epsilon=1e-4, relative_floor=RELATIVE_FLOOR
        ),
    ),
    "whitened": (
        whitened_advantage(kl_coefficient=0.2, epsilon=1e-8),
        lambda lp, r, m: oracle.whitened(
            oracle.returns_to_go(r.outcome, lp.old, lp.reference, m.trainable, 0.2), m.trainable, 1e-8, RELATIVE_FLOOR
        ),
    ),
    "whitened, no kl": (
        whitened_advantage(kl_coefficient=0, epsilon=1e-8),
        lambda lp, r, m: oracle.whitened(
            oracle.returns_to_go(r.outcome, lp.old, lp.reference, m.trainable, 0), m.trainable, 1e-8, RELATIVE_FLOOR
        ),
    ),
    "group baseline": (
        group_baseline_whitened_advantage(epsilon=1e-8),
        lambda lp, r, m: oracle.whitened(
            oracle.centered(r.outcome, m.valid, m.trainable), m.trainable, 1e-8, RELATIVE_FLOOR
        ),
    ),
    "turn returns": (
        turn_return_advantage(discount=0.9, ddof=0, epsilon=1e-6),
        lambda lp, r, m: oracle.turn_return_advantage(
            r.outcome, r.turn_scores, m.num_turns, m.valid, m.trainable, m.turn,
            discount=0.9, ddof=0, epsilon=1e-6, relative_floor=RELATIVE_FLOOR,
        ),
    ),
}  # fmt: skip
ESTIMATING = {name: whole(stage) for name, (stage, _) in ESTIMATORS.items()}


@precisions
@pytest.mark.parametrize("name", ESTIMATORS)
@laws
@given(batch=drawn(spread=0.3))
def test_estimators(tolerance, name, batch):
    # Beside a reward of 1000, float32 rounds what a turn's score adds.
    assume(tolerance < 1e-6 or name != "turn returns" or np.nanmax(np.abs(batch[1].outcome), initial=0) < 100)
    out = computed(ESTIMATING[name], batch, tolerance)
    expected = ESTIMATORS[name][1](*batch)
    assert_close(out.credit.advantages, expected, relative=tolerance, floor=1e-6)


@laws
@given(batch=batches(rewards="binary", invalid=0.0))
def test_leave_one_out_is_the_centred_reward_stretched(batch):
    loo, centered = (
        computed(ESTIMATING[name], batch, 1e-12).credit.advantages for name in ("leave_one_out", "centered")
    )
    n = batch[2].valid.shape[1]
    np.testing.assert_allclose(loo, centered * n / (n - 1), rtol=0, atol=1e-12)


def test_what_makes_no_stage_is_refused():
    for make, says in (
        (lambda: overlong_penalty(10, 0), "0 < buffer_tokens <= max_tokens"),
        (lambda: overlong_penalty(10, 11), "0 < buffer_tokens <= max_tokens"),
        (lambda: kl_in_reward(-1.0), "coefficient=-1.0"),
        (lambda: condition_advantage(ddof=2, epsilon=0.0), "ddof=2"),
        (lambda: whitened_advantage(kl_coefficient=-0.1, epsilon=0.0), "kl_coefficient=-0.1"),
        (lambda: group_baseline_whitened_advantage(epsilon=-1.0), "epsilon=-1.0"),
        (lambda: turn_return_advantage(discount=1.5, ddof=0, epsilon=0.0), "discount=1.5"),
    ):
        with pytest.raises(ValueError, match=says):
            make()
    for stage in (format_gate("absent"), named_reward("absent", 1.0)):
        with pytest.raises(MethodError, match=r"Rewards.named\['absent'\].*\['format'\]"):
            computed(whole(stage, centered_advantage()), make_batch(0), 2e-5)


def test_metrics_of_shapers():
    batch = with_half(make_batch(3))
    mask = batch[2].valid
    out = values(computed(SHAPING["format_gate"], batch, 2e-5).metrics)
    assert out["well_formed"] == pytest.approx((batch[1].named["half"][mask] > 0).mean(), rel=1e-6)
