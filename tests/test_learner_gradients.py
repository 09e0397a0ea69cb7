"""Cutting an update batch into micro-batches changes nothing; counting per micro-batch (what the field did) does."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.learner import (
    create_state,
    from_optax,
    make_learner,
    make_supervised_step,
    member_slices,
    state_shardings,
    whole_groups,
)
from rlagents.learner.slices import by_members, by_prompts, join_members, join_prompts, sum_over, update_batch
from rlagents.methods.recipes import grpo
from rlagents.methods.reductions import constant, sequence_mean, token_mean
from rlagents.sharding import single_device_mesh
from rlagents.types import LogProbs
from tests import toy_policy
from tests.effort import draws

SGD = from_optax(optax.sgd(1.0), optax.constant_schedule(1.0))
WHOLE = whole_groups(toy_policy.apply)
MESH = single_device_mesh()


def close(a, b):
    """Equal to 1e-5 of the largest entry, leaf by leaf."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert np.max(np.abs(x - y)) <= 1e-5 * max(np.max(np.abs(y)), 1e-30)


def sliced(members):
    return member_slices(toy_policy.prefix_kv, toy_policy.member_scores, members=members)


def new_state(optimizer, method_state=()):
    params = toy_policy.init_params()
    shardings = state_shardings(params, optimizer, method_state, toy_policy.AXES, MESH)
    return create_state(params, optimizer, method_state, jax.random.key(0), shardings), shardings


def take_update(batch, method, passes, prompts, *, reference_seed=1):
    """Parameters after one SGD step of rate 1 (so: minus the gradient), and the report."""
    state, shardings = new_state(SGD, method.init())
    learner = make_learner(method, passes, SGD, shardings, prompts_per_micro_batch=prompts)
    facts = learner.prepare(state.params, toy_policy.init_params(reference_seed), batch)
    state, credit, _ = learner.credit(state, batch, facts)
    state, report = learner.step(state, batch, facts, credit, learner.schedule[0])
    return state.params, report


@pytest.mark.parametrize(
    ("reduction", "prompts", "members"),
    [(token_mean(), 1, 4), (sequence_mean(), 2, 2), (constant(7), 4, 1), (token_mean(), 1, 1)],
    ids=["prompts", "both", "members", "one-by-one"],
)
def test_micro_batched_equals_whole(reduction, prompts, members):
    batch, method = toy_policy.random_batch(1), grpo(reduction=reduction)
    whole, report = take_update(batch, method, WHOLE, 4)
    parts, parts_report = take_update(batch, method, sliced(members), prompts)
    close(parts, whole)
    before = toy_policy.init_params()
    close(jax.tree.map(jnp.subtract, parts, before), jax.tree.map(jnp.subtract, whole, before))
    close(parts_report.loss, report.loss)
    close(parts_report.gradient_norm, report.gradient_norm)
    for name, mean in report.metrics.items():
        np.testing.assert_allclose(parts_report.metrics[name].value, mean.value, rtol=1e-5, atol=1e-6)


def test_the_loss_is_that_of_the_method_called_at_once():
    batch, method = toy_policy.random_batch(1), grpo()
    reference, _ = toy_policy.apply(toy_policy.init_params(1), batch.sequences)

    def loss(params):
        log_prob, entropy = toy_policy.apply(params, batch.sequences)
        old = jax.lax.stop_gradient(log_prob)
        logprobs = LogProbs(policy=log_prob, entropy=entropy, old=old, reference=reference)
        return method(logprobs, batch.rewards, batch.masks)[0]

    value, gradient = jax.jit(jax.value_and_grad(loss))(toy_policy.init_params())
    params, report = take_update(batch, method, WHOLE, 4)
    close(report.loss, value)
    close(params, jax.tree.map(jnp.subtract, toy_policy.init_params(), gradient))


def test_token_means_of_micro_batches_do_not_add_up():
    """The naive accumulation: a mean per micro-batch, averaged. It weighs a token by who shares its micro-batch."""
    batch = toy_policy.random_batch(1)
    trained = jnp.asarray(batch.masks.trainable)
    log_prob, _ = toy_policy.apply(toy_policy.init_params(), batch.sequences)
    means = [jnp.sum(jnp.where(trained[i], log_prob[i], 0)) / jnp.sum(trained[i]) for i in range(4)]
    state, shardings = new_state(SGD)
    step = make_supervised_step(WHOLE, SGD, shardings, prompts_per_micro_batch=1)
    _, report = step(state, batch.sequences, batch.masks)
    whole = -jnp.sum(jnp.where(trained, log_prob, 0)) / jnp.sum(trained)
    close(report.loss, whole)
    assert abs(-sum(means) / 4 - whole) > 1e-3


@pytest.mark.parametrize("accumulation", [1, 2, 4])
def test_supervised_gradient_does_not_depend_on_accumulation(accumulation):
    batch = toy_policy.random_batch(2)
    state, shardings = new_state(SGD)
    step = make_supervised_step(WHOLE, SGD, shardings, prompts_per_micro_batch=4 // accumulation)
    state, _ = step(state, batch.sequences, batch.masks)
    trained = jnp.asarray(batch.masks.trainable)

    def loss(params):
        log_prob, _ = toy_policy.apply(params, batch.sequences)
        return -jnp.sum(jnp.where(trained, log_prob, 0)) / jnp.sum(trained)

    gradient = jax.grad(loss)(toy_policy.init_params())
    close(state.params, jax.tree.map(jnp.subtract, toy_policy.init_params(), gradient))


@settings(max_examples=draws(8), deadline=None)
@given(st.permutations(range(4)), st.permutations(range(4)))
def test_order_of_prompts_and_members_is_irrelevant(prompts, members):
    batch, method = toy_policy.random_batch(3), grpo()
    prompts, members = np.array(prompts), np.array(members)
    shared = {"prefix": batch.sequences.prefix[prompts], "prefix_length": batch.sequences.prefix_length[prompts]}
    moved = jax.tree.map(lambda x: x[prompts][:, members] if x.ndim > 1 else x[prompts], batch)
    moved = dataclasses.replace(moved, sequences=dataclasses.replace(moved.sequences, **shared))
    whole, _ = _cached_update(batch, method)
    close(_cached_update(moved, method)[0], whole)


_LEARNER = {}


def _cached_update(batch, method):
    state, shardings = new_state(SGD, method.init())
    learner = _LEARNER.setdefault("order", make_learner(method, sliced(2), SGD, shardings, prompts_per_micro_batch=2))
    facts = learner.prepare(state.params, toy_policy.init_params(1), batch)
    state, credit, _ = learner.credit(state, batch, facts)
    state, report = learner.step(state, batch, facts, credit, learner.schedule[0])
    return state.params, report


@given(st.integers(1, 2), st.integers(2, 3), st.integers(1, 2), st.integers(2, 3))
@settings(max_examples=draws(6), deadline=None)
def test_cutting_and_joining_is_the_identity(p, pieces, g, member_pieces):
    x = np.arange(p * pieces * g * member_pieces * 2).reshape(p * pieces, g * member_pieces, 2)
    np.testing.assert_array_equal(join_prompts(by_prompts(jnp.asarray(x), p, MESH)), x)
    np.testing.assert_array_equal(join_members(by_members(jnp.asarray(x), g)), x)
    taken = [update_batch(jnp.asarray(x), np.int32(i), pieces, MESH) for i in range(pieces)]
    np.testing.assert_array_equal(np.sort(np.concatenate(taken), axis=0), x)


def test_sums_are_at_least_float32():
    """4096 bfloat16 ones: a running bfloat16 sum stops at 256."""
    ones = jnp.ones((4096,), jnp.bfloat16)
    total = sum_over(lambda x: {"sum": x}, ones)["sum"]
    assert total.dtype == jnp.float32
    assert total == 4096


def test_ragged_cuts_are_refused():
    """A micro-batch that divides nothing, and one that would tear groups apart, never pass silently."""
    batch = toy_policy.random_batch(1)
    with pytest.raises(ValueError, match="4 prompts of an update batch cannot be cut into pieces of 3"):
        take_update(batch, grpo(), WHOLE, 3)
    with pytest.raises(ValueError, match="4 members of a group cannot be cut into pieces of 3"):
        take_update(batch, grpo(), sliced(3), 2)
