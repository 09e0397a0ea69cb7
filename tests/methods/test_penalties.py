"""Penalties beside k3 against their oracles; equal rewards leave them alone in the loss."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from rlagents.methods import (
    adaptive_kl_penalty,
    chain,
    clipped_surrogate,
    entropy_regularizer,
    group_advantage,
    kl_penalty_k1,
    kl_penalty_k2,
    kl_penalty_k3,
    likelihood_drop_penalty,
    likelihood_drop_penalty_by_trajectory,
    likelihood_drop_penalty_by_turn,
    method,
    policy_gradient,
    token_mean,
)
from rlagents.methods.likelihood import positive
from rlagents.numerics import LOG_RATIO_BOUND
from tests.methods.batches import laws, make_batch
from tests.methods.harness import assert_close, values
from tests.methods.test_oracles import computed, drawn, precisions
from tests.oracles import penalties as oracle
from tests.oracles import reductions


def penalised(*stages, surrogate=None):
    surrogate = surrogate or clipped_surrogate(0.2, 0.2)
    return method(chain(group_advantage(ddof=0, epsilon=1e-6), surrogate, *stages), token_mean())


KL = {"k1": (penalised(kl_penalty_k1(0.7)), oracle.k1), "k2": (penalised(kl_penalty_k2(0.7)), oracle.k2)}


@precisions
@pytest.mark.parametrize("name", KL)
@laws
@given(batch=drawn(rewards="equal"))
def test_kl_penalties(tolerance, name, batch):
    logprobs, _, masks = batch
    out = computed(KL[name][0], batch, tolerance)
    value, slopes = KL[name][1](logprobs.policy, logprobs.reference, masks.trainable, bound=LOG_RATIO_BOUND)
    weights = reductions.token_mean(masks.trainable)
    size = np.abs(weights * value).sum() + 1e-3
    assert_close(out.loss, 0.7 * (weights * value).sum(), relative=tolerance, floor=size)
    assert_close(values(out.metrics)["kl"], (weights * value).sum(), relative=tolerance, floor=size)
    assert_close(out.gradients[0].policy, 0.7 * weights * slopes, relative=tolerance, floor=1e-2)


ENTROPY = penalised(entropy_regularizer(0.3))


@precisions
@laws
@given(batch=drawn(rewards="equal"))
def test_entropy_regularizer(tolerance, batch):
    logprobs, _, masks = batch
    out = computed(ENTROPY, batch, tolerance)
    weights = reductions.token_mean(masks.trainable)
    expected = -0.3 * np.where(masks.trainable, np.nan_to_num(logprobs.entropy.astype(float)) * weights, 0).sum()
    assert_close(out.loss, np.float64(expected), relative=tolerance, floor=1e-3)
    assert_close(out.gradients[0].entropy, -0.3 * weights, relative=tolerance, floor=1e-3)


NON_NEGATIVE, POSITIVE = (lambda advantages: advantages >= 0), (lambda advantages: advantages > 0)
DROPS = {
    "token": (likelihood_drop_penalty(0.1), NON_NEGATIVE, "token"),
    "token, positive": (likelihood_drop_penalty(0.1, worth=positive), POSITIVE, "token"),
    "turn": (likelihood_drop_penalty_by_turn(0.1), NON_NEGATIVE, "turn"),
    "trajectory": (likelihood_drop_penalty_by_trajectory(0.1), NON_NEGATIVE, "trajectory"),
}
BARE = penalised(surrogate=policy_gradient())
DROPPING = {name: penalised(stage, surrogate=policy_gradient()) for name, (stage, _, _) in DROPS.items()}


@precisions
@pytest.mark.parametrize("name", DROPS)
@laws
@given(batch=drawn())
def test_likelihood_drop(tolerance, name, batch):
    logprobs, _, masks = batch
    _, worth, gate = DROPS[name]
    out, bare = computed(DROPPING[name], batch, tolerance), computed(BARE, batch, tolerance)
    loss, slopes = oracle.likelihood_drop(
        logprobs.policy,
        logprobs.old,
        out.credit.advantages,
        masks.trainable,
        masks.turn,
        worth,
        gate=gate,
    )
    assert_close(values(out.metrics)["likelihood_drop"], np.float64(loss), relative=tolerance, floor=1e-3)
    assert_close(out.loss - bare.loss, np.float64(0.1 * loss), relative=tolerance, floor=10)
    difference = out.gradients[0].policy - bare.gradients[0].policy
    assert_close(difference, 0.1 * slopes, relative=tolerance, floor=1)


ADAPTIVE = penalised(adaptive_kl_penalty(0.1, target=0.05, horizon=10))


@precisions
@laws
@given(batch=drawn())
def test_the_adaptive_coefficient_follows_the_distance(tolerance, batch):
    logprobs, _, masks = batch
    out = computed(ADAPTIVE, batch, tolerance)
    mask = masks.trainable
    distance = (
        (logprobs.old[mask].astype(float) - logprobs.reference[mask].astype(float)).mean() if mask.any() else None
    )
    expected = 0.1 if distance is None else oracle.adapted(0.1, distance, 0.05, 10)
    assert_close(out.state[-1], np.asarray(expected), relative=tolerance)
    assert values(out.metrics)["kl_coefficient"] == pytest.approx(expected, rel=1e-5)


def test_the_adaptive_penalty_weighs_k3_by_what_it_remembers():
    logprobs, rewards, masks = make_batch(5, rewards="equal")
    fixed = penalised(kl_penalty_k3(1.0))
    credit, _, _ = ADAPTIVE.credit(ADAPTIVE.init(), logprobs, rewards, masks)
    state = (*ADAPTIVE.init()[:-1], jnp.float32(0.25))
    measures = ADAPTIVE.measures(credit, masks)
    loss, _ = ADAPTIVE.loss(state, logprobs, credit, masks, measures)
    whole, _ = fixed.loss(fixed.init(), logprobs, credit, masks, measures)
    np.testing.assert_allclose(loss, 0.25 * whole, rtol=1e-6)


def test_what_makes_no_penalty_is_refused():
    for make in (kl_penalty_k1, kl_penalty_k2, entropy_regularizer, likelihood_drop_penalty):
        with pytest.raises(ValueError, match=rf"{make.__name__}.coefficient=-1"):
            make(-1)
    assert not chain(kl_penalty_k1(0), kl_penalty_k2(0), entropy_regularizer(0)).stages
    with pytest.raises(ValueError, match="target=0"):
        adaptive_kl_penalty(0.1, target=0, horizon=10)
