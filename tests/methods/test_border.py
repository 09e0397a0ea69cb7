"""What crosses the border: nothing off the mask, no gradient to facts, and nothing at all from an emptied batch."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings

from rlagents.methods import Role, chain, filter_stage, method, on_policy, penalty, reshaper, token_mean
from rlagents.methods import border as the_border
from rlagents.types import Credit, Kind
from tests.effort import draws
from tests.methods import examples
from tests.methods.batches import SHAPE, batches, laws, make_batch
from tests.methods.harness import assert_close, assert_same, run, whole
from tests.methods.table import METHODS, SURROGATES, complete

every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


@every_method
@laws
@given(batch=batches())
def test_nothing_comes_from_off_the_mask(method, batch):
    _, _, masks = batch
    out = run(method, batch)
    off = ~masks.trainable
    assert np.isfinite(out.loss)
    for gradient in (out.gradients[0].policy, out.gradients[0].entropy):
        assert np.isfinite(gradient).all()
        assert (gradient[off] == 0).all()
        assert (gradient[~out.credit.mask] == 0).all()
    assert (out.credit.advantages[off] == 0).all()
    assert np.isfinite(out.credit.rewards).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((out.metrics, out.state, out.measures)))
    # Something does come from the mask: where nothing is clipped (far from old, every token may be).
    logprobs, rewards, _ = batch
    out = run(method, (replace(logprobs, old=logprobs.policy), rewards, masks))
    assert np.abs(out.gradients[0].policy).max() > 0 or not out.credit.advantages.any()


@pytest.mark.parametrize("name", METHODS)
def test_every_line_trains_something(name):
    """So that the laws compare more than zeros."""
    shape = (4, 6, 9, 3) if name == "simple_tir" else SHAPE  # it asks for four finished members
    gradients = [run(METHODS[name], make_batch(seed, shape, invalid=0.0, spread=0.1)).gradients[0] for seed in range(6)]
    assert any(np.abs(gradient.policy).max() > 0 for gradient in gradients)


@every_method
@pytest.mark.parametrize("seed", range(2))
def test_what_the_padding_holds_changes_no_bit(method, seed):
    usual = run(method, make_batch(seed, padding=0.0))
    for padding in (np.nan, np.inf, -1e30):
        assert_same(run(method, make_batch(seed, padding=padding)), usual)


@every_method
@laws
@given(batch=batches())
def test_the_gradient_by_every_fact_is_exactly_zero(method, batch):
    logprobs, rewards = run(method, batch).gradients
    for fact in (logprobs.old, logprobs.old_entropy, logprobs.reference, logprobs.rollout):
        assert (fact == 0).all()
    for fact in (rewards.outcome, rewards.turn_scores, rewards.named["format"]):
        assert (fact == 0).all()


@pytest.mark.parametrize("name", SURROGATES)
@laws
@given(batch=batches(spread=0.0))
def test_at_policy_equal_to_old_a_surrogates_gradient_is_minus_measure_times_advantage(name, batch):
    logprobs, rewards, masks = batch
    alone = _alone(name)
    out = run(alone, (replace(logprobs, old=logprobs.policy), rewards, masks))
    expected = -out.measures.shared * out.credit.advantages
    if name == "sequence_surrogate":  # its gradient is a mean over the trajectory, which rounds
        assert_close(out.gradients[0].policy, expected, relative=1e-6)
    else:
        assert_same(out.gradients[0].policy, expected)


def test_a_dropped_member_has_no_trained_token_even_if_its_filter_forgot_the_mask():
    forgetful = filter_stage("forgetful", lambda credit, *facts: (replace(credit, valid=credit.valid & EVEN), {}))
    logprobs, rewards, masks = make_batch(7, invalid=0.0)
    out = run(complete(forgetful), (logprobs, rewards, masks))
    assert out.credit.mask[:, ::2].any()
    assert not out.credit.mask[:, 1::2].any()
    assert not out.gradients[0].policy[:, 1::2].any()


def test_no_stage_brings_back_what_an_earlier_one_left_out():
    def undo(credit, logprobs, rewards, masks):
        return replace(credit, mask=masks.trainable, valid=masks.valid), {}

    logprobs, rewards, masks = make_batch(7, invalid=0.0)
    wanted = run(complete(examples.drop_truncated()), (logprobs, rewards, masks)).credit
    undone = run(complete(examples.drop_truncated(), reshaper("undo", undo)), (logprobs, rewards, masks)).credit
    assert (wanted.valid != masks.valid).any()
    assert_same((undone.valid, undone.mask), (wanted.valid, wanted.mask))


EVEN = jnp.arange(SHAPE[1]) % 2 == 0
_ALONE = {}


def _alone(name):
    if name not in _ALONE:
        _ALONE[name] = complete(SURROGATES[name])
    return _ALONE[name]


def test_on_policy_makes_every_ratio_exactly_one():
    logprobs, rewards, masks = make_batch(4, spread=3.0)
    kept = METHODS["grpo"]

    def loss(logprobs):
        return kept(on_policy(replace(logprobs, old=None)), rewards, masks)

    (_, metrics), gradients = jax.value_and_grad(loss, has_aux=True)(logprobs)
    assert metrics["ratio"] == 1
    assert metrics["clip_fraction"] == 0
    assert np.abs(gradients.policy).max() > 0


EMPTIED = {
    "all invalid": lambda masks: replace(masks, valid=np.zeros_like(masks.valid)),
    "tool tokens only": lambda masks: replace(masks, kind=np.where(masks.kind == Kind.MODEL, Kind.TOOL, masks.kind)),
    "padding only": lambda masks: replace(masks, kind=np.zeros_like(masks.kind), turn=np.full_like(masks.turn, -1)),
}


@every_method
@pytest.mark.parametrize("how", EMPTIED)
def test_an_emptied_batch_gives_nothing_and_the_optimizer_does_not_move(method, how):
    logprobs, rewards, masks = make_batch(7, rewards="continuous")
    masks = EMPTIED[how](masks)
    out = run(method, (logprobs, rewards, masks))
    assert out.loss == 0
    assert not out.credit.mask.any()
    for gradient in (out.gradients[0].policy, out.gradients[0].entropy):
        assert (gradient == 0).all()
    params = jnp.ones(3)
    optimizer = optax.adam(1e-2)
    slope = jnp.sum(out.gradients[0].policy) * jnp.ones(3)
    updates, _ = optimizer.update({"w": slope}, optimizer.init({"w": params}))
    assert_same(optax.apply_updates({"w": params}, updates), {"w": params})


@every_method
@settings(laws, max_examples=draws(4))
@given(batch=batches())
def test_valid_and_mask_only_go_from_true_to_false_at_every_stage(method, batch):
    logprobs, rewards, masks = jax.tree.map(jnp.asarray, batch)
    logprobs, rewards = the_border.facts(logprobs, rewards, masks)
    before = Credit.opening(rewards, masks)
    assert_same(before.mask, masks.trainable)
    for stage in method.transform.stages:
        if stage.credit is not None:
            after, _, _ = stage.credit(stage.init(), before, logprobs, rewards, masks)
            assert not (after.valid & ~before.valid).any()
            assert not (after.mask & ~before.mask).any()
            assert (after.valid.dtype, after.mask.dtype) == (jnp.bool_, jnp.bool_)
            assert stage.role is not Role.ESTIMATOR or not after.advantages[~after.mask].any()
            before = after


def test_a_filter_that_forgets_the_mask_of_the_member_it_drops_trains_none_of_it():
    from rlagents.methods import clipped_surrogate, filter_stage, group_advantage

    def credit(credit, logprobs, rewards, masks):
        return replace(credit, valid=credit.valid & (masks.condition != 1)), {}

    stages = chain(filter_stage("careless", credit), group_advantage(ddof=0, epsilon=1e-6), clipped_surrogate(0.2, 0.2))
    _, _, masks = batch = make_batch(1, invalid=0.0)
    out = run(method(stages, token_mean()), batch)
    assert (masks.condition == 1).any()
    assert not out.credit.mask[masks.condition == 1].any()
    assert out.gradients[0].policy[masks.condition != 1].any()


@every_method
def test_facts_stay_as_they_were(method):
    batch = make_batch(8)
    copies = jax.tree.map(np.copy, batch)
    arrays = jax.tree.map(jnp.asarray, batch)
    whole(method, *arrays)
    assert_same((batch, arrays), (copies, copies))


@every_method
def test_the_credit_half_reads_neither_policy_nor_entropy(method):
    logprobs, rewards, masks = make_batch(9)
    hidden = replace(logprobs, policy=np.full_like(logprobs.policy, np.nan), entropy=None)
    usual, blind = (method.credit(method.init(), seen, rewards, masks) for seen in (logprobs, hidden))
    assert_same(usual, blind)


def test_credit_halves_are_shown_neither_live_fields_nor_turns_that_are_not_there():
    logprobs, rewards, masks = jax.tree.map(jnp.asarray, make_batch(10, invalid=0.5))
    rewards = replace(rewards, turn_tool_calls=jnp.ones_like(rewards.turn_tool_calls))
    shown, said = the_border.facts(logprobs, rewards, masks)
    assert jnp.isnan(shown.policy).all()
    assert shown.entropy is None
    there = (jnp.arange(3) < masks.num_turns[..., None]) & masks.valid[..., None]
    assert (~masks.valid).any()
    assert_same(said.turn_tool_calls, there.astype(int))


def test_a_stage_with_a_measure_of_its_own_is_weighed_by_it():
    out = run(METHODS["penalty with own measure"], make_batch(1, rewards="continuous"))
    (own,) = (measure for measure in out.measures.own if measure is not None)
    positive = out.credit.mask & (out.credit.advantages > 0)
    assert 0 < positive.sum() < out.credit.mask.sum()
    np.testing.assert_allclose(own, positive / positive.sum(), rtol=1e-6)
    np.testing.assert_allclose(out.gradients[0].entropy, -0.1 * own, rtol=1e-6)


def test_a_stage_remembers_from_one_rollout_batch_to_the_next():
    method = METHODS["penalty with memory"]
    logprobs, rewards, masks = make_batch(2, spread=3.0)
    state, weights = method.init(), []
    for _ in range(3):
        credit, state, _ = method.credit(state, logprobs, rewards, masks)
        _, metrics = method.loss(state, logprobs, credit, masks, method.measures(credit, masks))
        weights.append(float(metrics["weight"].value))
    np.testing.assert_allclose(weights, [0.2, 0.4, 0.8], rtol=1e-6)


def test_a_term_that_is_infinite_off_the_mask_spoils_neither_value_nor_gradient():
    def loss(logprobs, credit, masks):
        return jnp.log(-logprobs.policy), {}

    out = run(complete(penalty("log", loss)), make_batch(3))
    assert np.isfinite(out.loss)
    assert np.isfinite(out.gradients[0].policy).all()
    assert (out.gradients[0].policy[~out.credit.mask] == 0).all()
