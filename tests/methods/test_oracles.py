"""Every stage against its oracle: 2e-5 in float32, 1e-12 in float64, over shapes and sizes of difference."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.methods import (
    chain,
    clipped_surrogate,
    group_advantage,
    kl_penalty_k3,
    method,
    recipes,
    token_mean,
)
from rlagents.numerics import LOG_RATIO_BOUND, RELATIVE_FLOOR
from rlagents.types import Kind, LogProbs, Masks, Rewards
from tests.effort import draws
from tests.methods.batches import batches, laws
from tests.methods.harness import assert_close, jitted, values, whole
from tests.methods.table import REDUCTIONS
from tests.oracles import clipped_surrogate as oracle_surrogate
from tests.oracles import group_advantage as oracle_advantage
from tests.oracles import grpo as oracle_grpo
from tests.oracles import k3 as oracle_k3
from tests.oracles import reductions as oracle_reductions

SHAPES = [(3, 4, 8, 2), (2, 7, 5, 1)]
precisions = pytest.mark.parametrize("tolerance", [2e-5, 1e-12], ids=["float32", "float64"])
some = settings(laws, max_examples=draws(8))
shapes = st.sampled_from(SHAPES)


def drawn(**fixed):
    return shapes.flatmap(lambda shape: batches(shape, **fixed))


def computed(a_method, batch, tolerance):
    """A run in the precision that the tolerance asks for."""
    double = tolerance < 1e-6
    with jax.enable_x64(True) if double else contextlib.nullcontext():
        if double:
            batch = jax.tree.map(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, batch)
        out = jax.tree.map(np.asarray, jitted(whole, a_method)(*jax.tree.map(jnp.asarray, batch)))
    assert out.loss.dtype == (np.float64 if double else np.float32)
    return out


@functools.cache
def of_advantage(ddof, epsilon):
    stages = chain(group_advantage(ddof=ddof, epsilon=epsilon), clipped_surrogate(0.2, 0.28))
    return method(stages, token_mean())


@precisions
@pytest.mark.parametrize(("ddof", "epsilon"), [(0, 1e-6), (1, 1e-4), (0, 0.0)])
@some
@given(batch=drawn())
def test_group_advantage(tolerance, ddof, epsilon, batch):
    _, rewards, masks = batch
    out = computed(of_advantage(ddof, epsilon), batch, tolerance)
    expected = oracle_advantage.group_advantage(
        rewards.outcome, masks.valid, masks.trainable, ddof=ddof, epsilon=epsilon, relative_floor=RELATIVE_FLOOR
    )
    assert_close(out.credit.advantages, expected, relative=tolerance)


@precisions
@some
@given(batch=drawn())
def test_clipped_surrogate(tolerance, batch):
    logprobs, _, masks = batch
    out = computed(of_advantage(1, 1e-4), batch, tolerance)
    terms, slopes, clipped = oracle_surrogate.clipped_surrogate(
        logprobs.policy,
        logprobs.old,
        out.credit.advantages,
        masks.trainable,
        clip_low=0.2,
        clip_high=0.28,
        bound=LOG_RATIO_BOUND,
    )
    weights = oracle_reductions.token_mean(masks.trainable)
    assert_close(out.loss, (weights * terms).sum(), relative=tolerance, floor=np.abs(weights * terms).sum())
    assert_close(out.gradients[0].policy, weights * slopes, relative=tolerance)
    assert_close(values(out.metrics)["clip_fraction"], np.float64(clipped), relative=tolerance)


_KL = method(chain(group_advantage(ddof=0, epsilon=1.0), clipped_surrogate(0.2, 0.2), kl_penalty_k3(0.7)), token_mean())


@precisions
@some
@given(batch=drawn(rewards="equal"))
def test_kl_penalty_k3(tolerance, batch):
    """Equal rewards leave the penalty alone in the loss."""
    logprobs, _, masks = batch
    out = computed(_KL, batch, tolerance)
    k3, slopes = oracle_k3.k3(logprobs.policy, logprobs.reference, masks.trainable, bound=LOG_RATIO_BOUND)
    weights = oracle_reductions.token_mean(masks.trainable)
    assert_close(out.loss, 0.7 * (weights * k3).sum(), relative=tolerance)
    assert_close(values(out.metrics)["kl"], (weights * k3).sum(), relative=tolerance)
    assert_close(out.gradients[0].policy, 0.7 * weights * slopes, relative=tolerance, floor=1e-2)


@precisions
@pytest.mark.parametrize("name", REDUCTIONS)
@some
@given(batch=drawn())
def test_reductions(tolerance, name, batch):
    mask = batch[2].trainable
    expected = {
        "token_mean": lambda: oracle_reductions.token_mean(mask),
        "sequence_mean": lambda: oracle_reductions.sequence_mean(mask),
        "constant": lambda: oracle_reductions.constant(mask, 7),
    }[name]()
    with jax.enable_x64(tolerance < 1e-6):
        weights = np.asarray(REDUCTIONS[name](jnp.asarray(mask)))
    assert_close(weights, expected, relative=tolerance)
    if name != "constant":
        assert weights.sum() == pytest.approx(float(mask.any()), rel=1e-5)


_GRPO = recipes.grpo(ddof=1, epsilon=1e-4, clip_low=0.2, clip_high=0.3, kl_coefficient=0.1)


@precisions
@some
@given(batch=drawn())
def test_the_whole_of_grpo(tolerance, batch):
    logprobs, rewards, masks = batch
    loss, gradient = oracle_grpo.grpo(
        logprobs.policy,
        logprobs.old,
        logprobs.reference,
        rewards.outcome,
        masks.kind,
        masks.valid,
        ddof=1,
        epsilon=1e-4,
        clip_low=0.2,
        clip_high=0.3,
        kl_coefficient=0.1,
        floor=RELATIVE_FLOOR,
        bound=LOG_RATIO_BOUND,
    )
    out = computed(_GRPO, batch, tolerance)
    assert_close(out.loss, np.float64(loss), relative=tolerance, floor=1)
    assert_close(out.gradients[0].policy, gradient, relative=tolerance)


def advantages_of(rewards, valid, *, ddof=0, epsilon=1e-6):
    """Advantages of one group, a token a member; padded with members that are not there to one shape for all."""
    absent = 7 - len(rewards)
    rewards = np.asarray([[*rewards, *[np.nan] * absent]], np.float32)
    valid = np.asarray([[*valid, *[False] * absent]])
    p, g = rewards.shape
    zeros, counts = np.zeros((p, g, 1), np.float32), np.zeros((p, g, 1), int)
    masks = Masks(counts + Kind.MODEL, counts, counts[..., 0] + 1, valid, np.zeros((p, g), bool), counts[..., 0] - 1)
    said = Rewards(rewards, zeros, counts, counts, counts.astype(bool))
    credit, _, metrics = of_advantage(ddof, epsilon).credit(((), ()), LogProbs(zeros), said, masks)
    assert not credit.advantages[:, 7 - absent :].any()
    return np.asarray(credit.advantages)[0, : 7 - absent, 0], {
        name: float(mean.value) for name, mean in metrics.items()
    }


def test_one_success_in_five():
    """Population std of [1, 0, 0, 0, 0] is 0.4."""
    advantages, metrics = advantages_of([1, 0, 0, 0, 0], [True] * 5)
    np.testing.assert_allclose(advantages, [2.0, -0.5, -0.5, -0.5, -0.5], rtol=1e-5)
    assert metrics["reward_mean"] == pytest.approx(0.2)
    assert metrics["reward_std"] == pytest.approx(0.4)
    assert metrics["advantage_spread"] == pytest.approx(2.5, rel=1e-5)
    assert metrics["zero_variance_groups"] == 0


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("epsilon", [0.0, 1e-6])
def test_nothing_to_compare_is_exactly_zero(ddof, epsilon):
    for rewards, valid in (
        ([0.7, 0.2, 0.9], [False, True, False]),
        ([0.1] * 7, [True] * 7),
        ([1000.1] * 3, [True] * 3),
        ([0.0, 0.0], [True] * 2),
        ([1.0, float(np.nextafter(np.float32(1), np.float32(2)))], [True] * 2),
        ([0.3, 0.4], [False] * 2),
    ):
        advantages, metrics = advantages_of(rewards, valid, ddof=ddof, epsilon=epsilon)
        assert (advantages == 0).all()
        assert metrics["zero_variance_groups"] == any(valid)
        assert metrics["advantage_spread"] == 0
