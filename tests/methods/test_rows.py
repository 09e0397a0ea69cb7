"""Rows are separable: slices add up to the whole, and permuting prompts or members permutes the result."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import draws
from tests.methods.batches import SHAPE, batches, laws
from tests.methods.harness import assert_close, assert_same, jitted, run, run_part, values
from tests.methods.table import BATCH_GLOBAL, METHODS

every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
SEPARABLE = {name: method for name, method in METHODS.items() if name not in BATCH_GLOBAL}


def rows(tree, index):
    return jax.tree.map(lambda x: x[index], tree)


@every_method
@settings(laws, max_examples=draws(3))
@given(batch=batches())
def test_losses_and_gradients_of_slices_add_up_to_the_whole(method, batch):
    logprobs, _, masks = batch
    uncut = run(method, batch)
    halves_p = [np.s_[:2], np.s_[2:]]
    members_g = [np.s_[:, :1], np.s_[:, 1:2], np.s_[:, 2:]]
    for slices in (halves_p, members_g):
        loss, metrics, gradient = 0, {}, np.full(masks.kind.shape, np.inf, np.float32)
        for index in slices:
            cut = rows((logprobs, uncut.credit, masks, uncut.measures), index)
            (part, more), gradients = run_part(method, uncut.state, *cut)
            loss += part
            metrics = {name: metrics[name] + mean if metrics else mean for name, mean in more.items()}
            gradient[index] = gradients.policy
        assert_close(loss, uncut.loss, relative=1e-6, floor=1)
        assert_close(gradient, uncut.gradients[0].policy, relative=1e-6)
        assert_close(values(metrics), values(uncut.loss_metrics), floor=1)


def _credit(method, logprobs, rewards, masks):
    return method.credit(method.init(), logprobs, rewards, masks)


@pytest.mark.parametrize("method", SEPARABLE.values(), ids=SEPARABLE)
@settings(laws, max_examples=draws(3))
@given(batch=batches())
def test_credit_of_some_prompts_is_the_credit_of_the_batch_at_these_prompts(method, batch):
    credit = run(method, batch).credit
    for index in (np.s_[:2], np.s_[2:]):
        assert_close(jitted(_credit, method)(*rows(batch, index))[0], rows(credit, index), relative=1e-6)


@every_method
@settings(laws, max_examples=draws(3))
# Not the ratios of spread 12: beside them the rounding of a mean of members in another order is no longer small.
@given(batch=batches(spread=st.sampled_from([0.0, 0.1, 1.0])))
def test_permuting_prompts_or_members_permutes_the_result(method, batch):
    p, g, _, _ = SHAPE
    usual = run(method, batch)
    for order in (np.array([2, 0, 3, 1])[:p], (slice(None), np.array([1, 2, 0])[:g])):
        moved = run(method, rows(batch, order))
        assert_close(moved.credit, rows(usual.credit, order), relative=1e-5)
        assert_same(moved.credit.mask, rows(usual.credit.mask, order))
        assert_close(moved.gradients[0].policy, rows(usual.gradients[0].policy, order), relative=1e-5)
        assert_close(moved.loss, usual.loss, relative=1e-5, floor=1)
        assert_close(moved.state, usual.state)
