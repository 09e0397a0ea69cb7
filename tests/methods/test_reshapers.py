"""Calibration, exploration and off-policy weights against their oracles."""

import numpy as np
import pytest
from hypothesis import given

from rlagents.methods import chain, clipped_surrogate, exploration, group_advantage, method, mute, token_mean
from rlagents.methods.calibration import rebalance_answers, soften_negative_turns, towards_the_best, wholly_from
from rlagents.methods.exploration import entropy_bonus
from rlagents.methods.offpolicy import (
    masked_sequence_weights,
    masked_token_weights,
    truncated_sequence_weights,
    truncated_token_weights,
)
from rlagents.numerics import LOG_RATIO_BOUND
from tests.methods.batches import laws, make_batch
from tests.methods.harness import assert_close, values
from tests.methods.test_filters import clean
from tests.methods.test_oracles import computed, drawn, precisions
from tests.oracles import calibration as oracle
from tests.oracles import exploration as oracle_exploration
from tests.oracles import offpolicy as oracle_offpolicy


def reshaped(*stages):
    return method(chain(group_advantage(ddof=1, epsilon=1e-6), *stages, clipped_surrogate(0.2, 0.2)), token_mean())


PLAIN = reshaped()


def bonus(which, over, fraction, enters):
    """The oracle of one entropy bonus of coefficient 0.3."""

    def expected(a, lp, r, m):
        mask = m.trainable
        gate = {
            "successful": lambda: oracle_exploration.after_calls(r.turn_tool_successes, m.turn, mask),
            "any": lambda: oracle_exploration.after_calls(r.turn_tool_calls, m.turn, mask),
            "all": lambda: mask,
        }[which]() & oracle_exploration.top(lp.old_entropy, mask, fraction)
        extra = 0.3 * gate * oracle_exploration.scores(lp.old_entropy, mask, over, 1e-8)
        return enters(a, extra)

    return expected


CASES = {
    "spare wholly": (
        soften_negative_turns(wholly_from(0.4)),
        lambda a, lp, r, m: oracle.spared_wholly(a, r.turn_scores, m.turn, m.num_turns, m.trainable, 0.4),
    ),
    "towards the best": (
        soften_negative_turns(towards_the_best),
        lambda a, lp, r, m: oracle.drawn_to_the_best(a, r.turn_scores, m.turn, m.num_turns, m.trainable),
    ),
    "soften": (
        soften_negative_turns(),
        lambda a, lp, r, m: oracle.softened(a, r.turn_scores, m.turn, m.num_turns, m.trainable),
    ),
    "rebalance": (
        rebalance_answers(1.0),
        lambda a, lp, r, m: oracle.rebalanced(a, m.turn, m.num_turns, m.trainable, 1.0),
    ),
    "rebalance, half": (
        rebalance_answers(0.5),
        lambda a, lp, r, m: oracle.rebalanced(a, m.turn, m.num_turns, m.trainable, 0.5),
    ),
    "bonus after success": (
        entropy_bonus(0.3, which=exploration.after_successful_call),
        bonus("successful", "trajectory", 1.0, lambda a, b: a * (1 + b)),
    ),
    "bonus after any, of the batch, top": (
        entropy_bonus(0.3, which=exploration.after_any_call, against=exploration.over_batch, top_fraction=0.5),
        bonus("any", "batch", 0.5, lambda a, b: a * (1 + b)),
    ),
    "bonus everywhere, added": (
        entropy_bonus(0.3, which=exploration.everywhere, enters=exploration.added),
        bonus("all", "trajectory", 1.0, lambda a, b: a + b),
    ),
    "bonus everywhere, bounded": (
        entropy_bonus(0.3, which=exploration.everywhere, enters=exploration.added_up_to(0.1)),
        bonus("all", "trajectory", 1.0, lambda a, b: a + np.clip(b, -0.1 * np.abs(a), 0.1 * np.abs(a))),
    ),
    "truncated tokens": (
        truncated_token_weights(1.5),
        lambda a, lp, r, m: a * np.minimum(
            oracle_offpolicy.token_weights(lp.old, lp.rollout, m.trainable, LOG_RATIO_BOUND), 1.5
        ),
    ),
    "truncated sequences": (
        truncated_sequence_weights(1.5),
        lambda a, lp, r, m: a * np.minimum(
            oracle_offpolicy.sequence_weights(lp.old, lp.rollout, m.trainable, LOG_RATIO_BOUND), 1.5
        ),
    ),
}  # fmt: skip
MASKING = {
    "masked tokens": (masked_token_weights(1.5), oracle_offpolicy.token_weights),
    "masked sequences": (masked_sequence_weights(1.5), oracle_offpolicy.sequence_weights),
}
METHODS = {name: reshaped(stage) for name, (stage, _) in (CASES | MASKING).items()}


@precisions
@pytest.mark.parametrize("name", CASES)
@laws
@given(batch=drawn(spread=0.3))
def test_reshapers(tolerance, name, batch):
    logprobs, rewards, masks = batch
    before = computed(PLAIN, batch, tolerance).credit.advantages
    after = computed(METHODS[name], batch, tolerance).credit.advantages
    expected = CASES[name][1](before, logprobs, clean(rewards, masks), masks)
    assert_close(after, np.where(masks.trainable, expected, 0), relative=tolerance, floor=1e-3)


@pytest.mark.parametrize("name", MASKING)
@laws
@given(batch=drawn(spread=0.3))
def test_masking_weights(name, batch):
    logprobs, _, masks = batch
    before = computed(PLAIN, batch, 1e-12).credit.advantages
    after = computed(METHODS[name], batch, 1e-12).credit.advantages
    weight = MASKING[name][1](logprobs.old, logprobs.rollout, masks.trainable, LOG_RATIO_BOUND)
    assert_close(after, before * np.where(weight <= 1.5, weight, 0), relative=1e-12, floor=1e-3)


@laws
@given(batch=drawn())
def test_balanced_answers_weigh_alike(batch):
    masks = batch[2]
    after = computed(METHODS["rebalance"], batch, 1e-12).credit.advantages
    answer = masks.trainable & (masks.turn == masks.num_turns[..., None] - 1)
    in_answers = np.where(answer, after, 0)
    assert_close(in_answers.sum((1, 2)), np.zeros(len(after)), relative=1e-12, floor=100)


def _only(sign):
    """Leave the answers of this sign: mute the members whose reward has the other."""
    out = (lambda c, r, m: c.rewards < 0.5) if sign > 0 else (lambda c, r, m: c.rewards > 0.5)
    out.__name__ = f"not {sign}"
    return reshaped_after(mute(out), rebalance_answers(1.0))


def reshaped_after(filtering, *stages):
    estimate = group_advantage(ddof=1, epsilon=1e-6)
    return method(chain(filtering, estimate, *stages, clipped_surrogate(0.2, 0.2)), token_mean())


@pytest.mark.parametrize("sign", [1, -1])
def test_answers_of_one_sign_count_nothing_and_other_turns_stay(sign):
    batch = make_batch(8, (6, 4, 12, 3), rewards="binary", invalid=0.0)
    masks, out = batch[2], computed(_only(sign), batch, 1e-12)
    answer = out.credit.mask & (masks.turn == masks.num_turns[..., None] - 1)
    other = out.credit.mask & ~answer
    assert answer.any()
    assert (out.credit.advantages[answer] == 0).all()
    before = computed(_only(sign).without("rebalance_answers"), batch, 1e-12).credit.advantages
    assert before[answer].any()
    assert before[other].any()
    np.testing.assert_array_equal(out.credit.advantages[other], before[other])
    assert values(out.metrics)["answers_of_one_sign"] == 1


@laws
@given(batch=drawn(rewards="continuous"))
def test_a_small_multiplied_bonus_flips_no_sign(batch):
    before = computed(PLAIN, batch, 1e-12).credit.advantages
    after = computed(METHODS["bonus after success"], batch, 1e-12).credit.advantages
    assert (np.sign(before) == np.sign(after)).all()


def test_what_makes_no_reshaper_is_refused():
    for make, says in (
        (lambda: rebalance_answers(0.0), "ratio=0.0"),
        (lambda: entropy_bonus(0.1, which=exploration.everywhere, top_fraction=0.0), "top_fraction=0.0"),
        (lambda: exploration.added_up_to(-0.1), "share=-0.1"),
        (lambda: truncated_token_weights(0.5), "limit=0.5"),
        (lambda: masked_sequence_weights(float("nan")), "limit=nan"),
    ):
        with pytest.raises(ValueError, match=says):
            make()
