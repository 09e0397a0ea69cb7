"""Stages of three papers in one chain, and every paper's ablations by leaving stages out of its sentence."""

import numpy as np
import pytest
from hypothesis import given

from rlagents.methods import MethodError, chain, clipped_surrogate, kl_penalty_k3, method, recipes, token_mean
from rlagents.numerics import RELATIVE_FLOOR
from tests.methods.batches import laws, make_batch
from tests.methods.harness import assert_close, run
from tests.methods.table import RECIPES
from tests.methods.test_filters import clean
from tests.methods.test_oracles import computed, drawn, precisions
from tests.oracles import calibration, estimators, exploration, filters

ACROSS = RECIPES["across papers"]


@precisions
@laws
@given(batch=drawn(rewards="binary", spread=0.3))
def test_credit_across_papers_is_that_of_the_oracles_one_after_the_other(tolerance, batch):
    """TAO-RL's filters, RC-GRPO's conditions, CalibAdv's two reshapers, TAO-RL's bonus."""
    logprobs, rewards, masks = batch
    said = clean(rewards, masks)
    muted = filters.void_turns(said.turn_void) | filters.failed_tools(said.turn_tool_calls, said.turn_tool_successes)
    valid = masks.valid & ~filters.pass_rate_outside(rewards.outcome, masks.valid, 0.0, 1.0)
    mask = masks.trainable & (valid & ~muted)[..., None]
    expected = estimators.condition_advantage(
        rewards.outcome, valid, masks.condition, mask, ddof=0, epsilon=1e-6, relative_floor=RELATIVE_FLOOR
    )
    expected = calibration.softened(expected, rewards.turn_scores, masks.turn, masks.num_turns, mask)
    expected = calibration.rebalanced(expected, masks.turn, masks.num_turns, mask, 1.0)
    gate = exploration.after_calls(said.turn_tool_successes, masks.turn, mask)
    gate &= exploration.top(logprobs.old_entropy, mask, 0.2)
    expected *= 1 + 0.01 * gate * exploration.scores(logprobs.old_entropy, mask, "trajectory", 1e-8)
    out = computed(ACROSS, batch, tolerance)
    np.testing.assert_array_equal(out.credit.mask, mask)
    assert_close(out.credit.advantages, np.where(mask, expected, 0), relative=tolerance, floor=1e-3)


def test_it_trains_something_and_every_stage_of_it_matters():
    """On some batch, leaving out any of the stages changes the gradient."""
    shape = (6, 8, 16, 4)
    batches = [make_batch(seed, shape, rewards="binary", invalid=0.0, spread=0.3) for seed in range(2)]
    whole = [run(ACROSS, batch).gradients[0].policy for batch in batches]
    assert all(np.abs(gradient).max() > 0 for gradient in whole)
    for name in ACROSS.stage_names:
        if name in ("condition_advantage", "dual_clip_surrogate", "drop_pass_rate_outside"):
            # A method needs the first two; without the third, groups of one reward have advantages of 0 anyway.
            continue
        others = [run(ACROSS.without(name), batch).gradients[0].policy for batch in batches]
        assert any(not np.array_equal(a, b) for a, b in zip(whole, others)), name


ABLATIONS = {
    "CalibAdv without soft penalty": ("calib_adv", ["soften_negative_turns"]),
    "CalibAdv without rebalance": ("calib_adv", ["rebalance_answers"]),
    "CalibAdv without either, which is GRPO": ("calib_adv", ["soften_negative_turns", "rebalance_answers"]),
    "TAO-RL without filter of failed tools": ("tao_rl", ["mute_failed_tools"]),
    "TAO-RL without filter of pass rates": ("tao_rl", ["drop_pass_rate_outside"]),
    "TAO-RL without either filter": ("tao_rl", ["mute_failed_tools", "drop_pass_rate_outside"]),
    "TAO-RL without bonus": ("tao_rl", ["entropy_bonus"]),
    "RC-GRPO without KL": ("rc_grpo", ["kl_penalty_k3"]),
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_is_the_sentence_without_its_stages(name):
    recipe, left_out = ABLATIONS[name]
    whole, ablated = RECIPES[recipe], RECIPES[recipe].without(*left_out)
    assert [stage for stage in whole.stage_names if stage not in left_out] == list(ablated.stage_names)
    assert ablated.reduction is whole.reduction
    kept = [stage for stage in whole.transform.stages if stage.name not in left_out]
    assert ablated.transform == chain(*kept)


def test_what_an_ablation_leaves_is_what_its_name_says():
    """CalibAdv without its reshapers gives the gradient of plain GRPO in its setting."""
    plain = method(chain(recipes.grpo(ddof=1).transform.stages[0], clipped_surrogate(0.2, 0.2)), token_mean())
    bare = RECIPES["calib_adv"].without("soften_negative_turns", "rebalance_answers")
    batch = make_batch(4)
    np.testing.assert_array_equal(run(bare, batch).gradients[0].policy, run(plain, batch).gradients[0].policy)


def test_leaving_out_what_is_not_there_or_what_a_method_needs_is_refused():
    whole = RECIPES["calib_adv"]
    with pytest.raises(MethodError, match=r"no stage is named \['soften'\]; the stages are \['group_advantage', 'soft"):
        whole.without("soften")
    with pytest.raises(MethodError, match="no estimator"):
        whole.without("group_advantage")
    with pytest.raises(MethodError, match="no surrogate"):
        whole.without("clipped_surrogate")
    assert whole.without() == whole
    assert kl_penalty_k3(0.1).name in RECIPES["rc_grpo"].stage_names
