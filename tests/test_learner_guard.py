"""A loss or gradient that is not finite moves nothing, is counted, and stops the run when it persists."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlagents.learner import (
    NonFiniteError,
    check_finite,
    create_state,
    make_optimizer,
    make_supervised_step,
    own_copy,
    report_values,
    state_shardings,
    whole_groups,
)
from rlagents.sharding import single_device_mesh
from tests import toy_policy

ADAMW = make_optimizer(optax.constant_schedule(0.1))
BATCH = toy_policy.random_batch(1)


def poisoned(params, sequences):
    """The first token of a prefix makes: 0 the loss infinite, 1 the gradient of one matrix NaN, 2 it huge."""
    log_prob, entropy = toy_policy.apply(params, sequences)
    first = sequences.prefix[:, 0][:, None, None]
    log_prob = jnp.where(first == 0, jnp.inf, log_prob)
    # sqrt at 0: the value is fine, the gradient inf * 0.
    zero = params["mix"][0, 0] - jax.lax.stop_gradient(params["mix"][0, 0])
    log_prob = log_prob + jnp.sqrt(jnp.where(first == 1, jnp.square(zero), 1)) - (first != 1)
    zero = (params["head"] - jax.lax.stop_gradient(params["head"])).sum()
    return log_prob + jnp.where(first == 2, 1e30 * zero, 0), entropy


@functools.cache
def learner():
    shardings = state_shardings(toy_policy.init_params(), ADAMW, (), toy_policy.AXES, single_device_mesh())
    return make_supervised_step(whole_groups(poisoned), ADAMW, shardings, prompts_per_micro_batch=4), shardings


def new_state():
    return create_state(toy_policy.init_params(), ADAMW, (), jax.random.key(0), learner()[1])


def starting_with(token):
    prefix = np.array(BATCH.sequences.prefix)
    prefix[:, 0] = np.where(np.arange(4) == 0, token, 5)
    return dataclasses.replace(BATCH.sequences, prefix=prefix)


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.parametrize(
    ("token", "cause"),
    [
        (0, "the loss was -inf"),
        (1, r"the loss was [\d.]+ but the gradient of mix was not finite"),
        (2, "the gradient's global norm was inf though every entry was finite"),
    ],
    ids=["loss", "gradient", "norm"],
)
def test_skipped_counted_and_stopped_with_its_cause(token, cause):
    step, _ = learner()
    state, report = step(new_state(), starting_with(5), BATCH.masks)
    check_finite(report)
    before = own_copy((state.params, state.optimizer_state))
    for skipped in range(1, 4):
        state, report = step(state, starting_with(token), BATCH.masks)
        assert same((state.params, state.optimizer_state), before)
        assert (int(state.nonfinite_in_a_row), int(state.skipped), int(state.step)) == (skipped, skipped, skipped + 1)
        if skipped < 3:
            check_finite(report, max_nonfinite_in_a_row=3)
    with pytest.raises(NonFiniteError, match=f"3 updates in a row were skipped, the last at step 3: {cause}"):
        check_finite(report, max_nonfinite_in_a_row=3)
    json.dumps(report_values(report))


def test_a_finite_update_starts_the_count_again():
    step, _ = learner()
    state = new_state()
    for token, in_a_row, skipped in [(0, 1, 1), (1, 2, 2), (5, 0, 2), (0, 1, 3)]:
        before = own_copy(state.params)
        state, report = step(state, starting_with(token), BATCH.masks)
        assert (int(state.nonfinite_in_a_row), int(state.skipped)) == (in_a_row, skipped)
        assert same(state.params, before) == (token != 5)
        check_finite(report, max_nonfinite_in_a_row=3)


def test_a_naive_update_is_poisoned():
    sequences = starting_with(1)
    gradient = jax.grad(lambda p: jnp.sum(poisoned(p, sequences)[0]))(toy_policy.init_params())
    updates, _ = ADAMW.update(gradient, ADAMW.init(gradient), toy_policy.init_params())
    moved = optax.apply_updates(toy_policy.init_params(), updates)
    assert not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(moved))
