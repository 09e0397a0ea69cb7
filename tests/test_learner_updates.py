"""One or several updates from a rollout batch: what ``old`` is, what a step moves and what it must leave alone."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlagents.learner import (
    create_state,
    from_optax,
    make_learner,
    make_optimizer,
    own_copy,
    report_values,
    state_shardings,
    warm_up,
)
from rlagents.learner.passes import Passes, whole_groups
from rlagents.methods import chain, clipped_surrogate, group_advantage, likelihood_drop_penalty, method
from rlagents.methods.recipes import grpo
from rlagents.methods.reductions import token_mean
from rlagents.sharding import single_device_mesh
from tests import toy_policy

MESH = single_device_mesh()
WHOLE = whole_groups(toy_policy.apply)
SGD = from_optax(optax.sgd(0.5), optax.constant_schedule(0.5))
ADAMW = make_optimizer(optax.constant_schedule(0.1), weight_decay=0.1)
NO_KL = grpo(kl_coefficient=0.0, reduction=token_mean())
WITH_KL = grpo()


@functools.cache
def learner_of(method, optimizer, updates, epochs):
    shardings = state_shardings(toy_policy.init_params(), optimizer, method.init(), toy_policy.AXES, MESH)
    learner = make_learner(
        method, WHOLE, optimizer, shardings, prompts_per_micro_batch=2, updates_per_batch=updates, epochs=epochs
    )
    return learner, shardings


def new_state(method, optimizer, shardings):
    return create_state(toy_policy.init_params(), optimizer, method.init(), jax.random.key(0), shardings)


def learn(learner, state, batch, reference=None):
    facts = learner.prepare(state.params, reference, batch)
    state, credit, _ = learner.credit(state, batch, facts)
    reports = []
    for update in learner.schedule:
        state, report = learner.step(state, batch, facts, credit, update)
        reports.append(report)
    return state, reports, facts, credit


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_a_single_update_has_ratio_exactly_one():
    """And its gradient is -measure * advantage at every trained token."""
    batch = toy_policy.random_batch(1)
    learner, shardings = learner_of(NO_KL, SGD, 1, 1)
    state, (report,), facts, credit = learn(learner, new_state(NO_KL, SGD, shardings), batch)
    assert facts.old is None
    assert facts.reference is None
    assert float(report.metrics["ratio"].value) == 1.0
    assert float(report.metrics["clip_fraction"].value) == 0.0

    def surrogate(params):
        log_prob, _ = toy_policy.apply(params, batch.sequences)
        measure = NO_KL.measures(credit, batch.masks).shared
        return -jnp.sum(jnp.where(credit.mask, measure * credit.advantages * log_prob, 0))

    gradient = jax.jit(jax.grad(surrogate))(toy_policy.init_params())
    for moved, before, slope in zip(*map(jax.tree.leaves, (state.params, toy_policy.init_params(), gradient))):
        np.testing.assert_allclose(moved, before - 0.5 * slope, atol=1e-6)


def test_prepare_runs_only_what_is_needed():
    calls = []

    def counted(params, sequences):
        calls.append(1)
        return toy_policy.apply(params, sequences)

    def prepare(method, epochs):
        _, shardings = learner_of(method, SGD, 1, 1)
        passes = Passes(counted, WHOLE.gradient)
        learner = make_learner(method, passes, SGD, shardings, prompts_per_micro_batch=2, epochs=epochs)
        calls.clear()
        facts = learner.prepare(toy_policy.init_params(), toy_policy.init_params(1), batch)
        return facts, len(calls)

    batch = toy_policy.random_batch(1)
    facts, passes = prepare(NO_KL, 1)
    assert passes == 0
    facts, passes = prepare(WITH_KL, 1)
    assert passes == 1
    assert facts.old is None
    np.testing.assert_allclose(
        facts.reference, toy_policy.apply(toy_policy.init_params(1), batch.sequences)[0], atol=1e-6
    )
    facts, passes = prepare(WITH_KL, 2)
    assert passes == 2
    np.testing.assert_allclose(facts.old, toy_policy.apply(toy_policy.init_params(), batch.sequences)[0], atol=1e-6)
    assert facts.old_entropy is None
    assert facts.rollout is None


@pytest.mark.parametrize("updates", [1, 2])
def test_computing_old_for_every_update_changes_nothing_but_rounding(updates):
    """What is switched off: the first update takes ``old`` from its own pass; a single one needs no other."""
    batch, ends = toy_policy.random_batch(4), []
    _, shardings = learner_of(WITH_KL, SGD, updates, 1)
    for reuse in (True, False):
        learner = make_learner(
            WITH_KL,
            WHOLE,
            SGD,
            shardings,
            prompts_per_micro_batch=2,
            updates_per_batch=updates,
            reuse_policy_as_old=reuse,
        )
        start = new_state(WITH_KL, SGD, shardings)
        state, reports, facts, _ = learn(learner, start, batch, toy_policy.init_params(1))
        ends.append((state.params, [report.loss for report in reports]))
    assert facts.old is not None
    seen = learner.prepare(toy_policy.init_params(1), toy_policy.init_params(1), batch).old
    _, (report, *_), *_ = learn(
        learner._replace(prepare=lambda *_: dataclasses.replace(facts, old=seen)),
        new_state(WITH_KL, SGD, shardings),
        batch,
    )
    assert abs(float(report.metrics["ratio"].value) - 1) > 1e-4, "the first update reads the fact"
    for reused, computed in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_allclose(reused, computed, rtol=1e-5, atol=1e-6)


def test_a_missing_reference_is_named():
    learner, shardings = learner_of(WITH_KL, SGD, 1, 1)
    with pytest.raises(ValueError, match="pass reference_params to prepare"):
        learner.prepare(new_state(WITH_KL, SGD, shardings).params, None, toy_policy.random_batch(1))


def test_several_updates_and_epochs_keep_the_old_policy():
    """Four updates by hand: each from its own slice, all against the log-probs from before the first."""
    batch = toy_policy.random_batch(4)
    learner, shardings = learner_of(WITH_KL, SGD, 2, 2)
    assert [int(i) for i in learner.schedule] == [0, 1, 2, 3]
    reference = toy_policy.init_params(1)
    start = new_state(WITH_KL, SGD, shardings)
    params = own_copy(start.params)
    state, reports, facts, credit = learn(learner, start, batch, reference)
    assert float(reports[0].metrics["ratio"].value) == 1, "nothing has moved"
    assert abs(float(reports[1].metrics["ratio"].value) - 1) > 1e-4
    assert abs(float(reports[2].metrics["ratio"].value) - 1) > 1e-4
    assert int(state.step) == 4
    values = report_values(*reports)
    assert values["updates_applied"] == 4
    assert values["tokens_trained"] == 2 * np.sum(credit.mask)
    assert values["loss"] == pytest.approx(np.mean([float(report.loss) for report in reports]))
    ratios = [report.metrics["ratio"] for report in reports]
    total, count = sum(float(ratio.total) for ratio in ratios), sum(float(ratio.count) for ratio in ratios)
    assert values["ratio"] == pytest.approx(total / count)

    @jax.jit
    def step(params, index):
        rows = jax.tree.map(lambda x: x[index::2], (batch, facts, credit))

        def loss(params):
            part, facts, credit = rows
            log_prob, entropy = toy_policy.apply(params, part.sequences)
            live = dataclasses.replace(facts, policy=log_prob, entropy=entropy)
            measures = WITH_KL.measures(credit, part.masks)
            return WITH_KL.loss(WITH_KL.init(), live, credit, part.masks, measures)[0]

        return jax.tree.map(lambda x, slope: x - 0.5 * slope, params, jax.grad(loss)(params))

    step = functools.partial(jax.jit(step.__wrapped__, static_argnums=1))
    for index in (0, 1, 0, 1):
        params = step(params, index)
    for ours, theirs in zip(jax.tree.leaves(state.params), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_old_log_probs_of_another_numerics_path_miss_the_ratio():
    """What the field did: ``old`` from an engine in lower precision. The ratio is off before anything moved.

    Ours is not, in the first update; so this is the second, of another slice, with the weights of the first.
    """
    batch = toy_policy.random_batch(4)
    learner, shardings = learner_of(WITH_KL, SGD, 2, 2)
    state = new_state(WITH_KL, SGD, shardings)
    rounded = jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), state.params)
    facts = learner.prepare(rounded, toy_policy.init_params(1), batch)
    state, credit, _ = learner.credit(state, batch, facts)
    _, report = learner.step(state, batch, facts, credit, learner.schedule[1])
    assert abs(float(report.metrics["ratio"].value) - 1) > 1e-4


def test_rounding_of_the_old_log_probs_charges_nobody_before_anything_moved():
    """At ``policy == old`` a fall of the likelihood is 0, not half of all tokens' rounding."""
    preserving = method(
        chain(
            group_advantage(ddof=0, epsilon=1e-6),
            clipped_surrogate(clip_low=0.2, clip_high=0.2),
            likelihood_drop_penalty(0.1),
        ),
        token_mean(),
    )
    batch = toy_policy.random_batch(4)
    learner, shardings = learner_of(preserving, SGD, 2, 1)
    state = new_state(preserving, SGD, shardings)
    facts = learner.prepare(state.params, None, batch)
    facts = dataclasses.replace(facts, old=facts.old + 1e-6)
    state, credit, _ = learner.credit(state, batch, facts)
    state, first = learner.step(state, batch, facts, credit, learner.schedule[0])
    assert float(first.metrics["likelihood_drop"].total) == 0
    assert float(first.metrics["ratio"].value) == 1
    _, second = learner.step(state, batch, facts, credit, learner.schedule[1])
    assert float(second.metrics["likelihood_drop"].total) > 0


def test_an_emptied_batch_moves_nothing():
    """Not even by momentum or weight decay, which move parameters on a gradient of 0."""
    learner, shardings = learner_of(NO_KL, ADAMW, 1, 1)
    state, (report,), *_ = learn(learner, new_state(NO_KL, ADAMW, shardings), toy_policy.random_batch(1))
    assert bool(report.applied)
    params, optimizer_state = own_copy((state.params, state.optimizer_state))

    empty = toy_policy.random_batch(2)
    empty = dataclasses.replace(empty, masks=dataclasses.replace(empty.masks, valid=np.zeros((4, 4), bool)))
    state, (report,), *_ = learn(learner, state, empty)
    assert same(state.params, params)
    assert same(state.optimizer_state, optimizer_state)
    assert bool(report.empty)
    assert not bool(report.applied)
    assert float(report.loss) == 0
    assert float(report.gradient_norm) == 0
    assert (int(state.skipped), int(state.nonfinite_in_a_row), int(state.step)) == (1, 0, 2)
    updates, _ = ADAMW.update(jax.tree.map(jnp.zeros_like, params), optimizer_state, params)
    assert not same(optax.apply_updates(params, updates), params), "the naive update does move"


def test_a_donated_step_leaves_the_copies_alone():
    """Plain device_put hands out the same buffers, and the first step deletes them under the sampler."""
    batch = toy_policy.random_batch(1)
    learner, shardings = learner_of(WITH_KL, SGD, 1, 1)
    given = own_copy(toy_policy.init_params())
    state = create_state(given, SGD, WITH_KL.init(), jax.random.key(0), shardings)
    sampler, naive = own_copy(state.params, shardings.params), jax.device_put(state.params, shardings.params)
    before = state
    learn(learner, state, batch, given)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before.params)), "the state is donated"
    assert any(leaf.is_deleted() for leaf in jax.tree.leaves(naive))
    assert same(given, toy_policy.init_params())
    assert same(sampler, toy_policy.init_params())


def test_nothing_recompiles_within_a_bucket(caplog):
    """Other lengths, masks, rewards, slices and steps are data; only another bucket is another shape."""
    learner, shardings = learner_of(WITH_KL, ADAMW, 2, 1)
    state = new_state(WITH_KL, ADAMW, shardings)
    reference = own_copy(state.params, shardings.params)
    state, *_ = learn(learner, state, toy_policy.random_batch(0), reference)
    with jax.log_compiles():
        for seed in range(1, 4):
            state, *_ = learn(learner, state, toy_policy.random_batch(seed), reference)
        assert [record.message for record in caplog.records if "Compiling" in record.message] == []
        learn(learner, state, toy_policy.random_batch(5, t=10), reference)
    assert [record.message for record in caplog.records if "Compiling jit(step)" in record.message]


def test_moments_are_float32_and_bfloat16_parameters_keep_their_dtype():
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), toy_policy.init_params())
    state = ADAMW.init(params)
    updates, after = ADAMW.update(params, state, params)
    assert {leaf.dtype for leaf in jax.tree.leaves(after) if leaf.ndim} == {jnp.dtype(jnp.float32)}
    assert jax.tree.map(lambda x: x.dtype, state) == jax.tree.map(lambda x: x.dtype, after)
    assert {leaf.dtype for leaf in jax.tree.leaves(optax.apply_updates(params, updates))} == {jnp.dtype(jnp.bfloat16)}


def test_gradients_are_clipped_to_their_global_norm():
    """A first Adam step ignores the gradient's size; the second moments show what came in."""
    optimizer = make_optimizer(optax.constant_schedule(0.1), max_grad_norm=0.5)
    gradient = {"a": jnp.full((3,), 100.0), "b": jnp.full((2, 2), -100.0)}
    _, state = optimizer.update(gradient, optimizer.init(gradient), gradient)
    second = optax.tree_utils.tree_get(state, "nu")
    np.testing.assert_allclose(sum(jnp.sum(leaf) for leaf in jax.tree.leaves(second)), 1e-3 * 0.25, rtol=1e-5)


def test_warm_up_rises_to_the_schedule():
    rate = warm_up(optax.linear_schedule(1.0, 0.0, 10), 4)
    np.testing.assert_allclose([float(rate(k)) for k in range(6)], [0.25, 0.45, 0.6, 0.7, 0.6, 0.5], rtol=1e-6)
    assert float(warm_up(optax.constant_schedule(0.3), 0)(0)) == pytest.approx(0.3)
    with pytest.raises(ValueError, match="warm_up_updates must be 0 or more, found -1"):
        warm_up(rate, -1)


def test_the_learning_rate_follows_the_updates_applied():
    """A skipped update uses up no step of the schedule: what is reported is what the optimizer used."""
    falling = optax.piecewise_constant_schedule(1.0, {1: 0.5})
    optimizer = from_optax(optax.sgd(falling), falling)
    learner, shardings = learner_of(NO_KL, optimizer, 1, 1)
    batch = toy_policy.random_batch(1)
    empty = dataclasses.replace(batch, masks=dataclasses.replace(batch.masks, valid=np.zeros((4, 4), bool)))
    state, rates = new_state(NO_KL, optimizer, shardings), []
    for each in (empty, batch, empty, batch):
        state, (report,), *_ = learn(learner, state, each)
        rates.append(float(report.learning_rate))
    assert rates == [1.0, 1.0, 0.5, 0.5]
    assert int(optax.tree_utils.tree_get(state.optimizer_state, "count")) == 2
