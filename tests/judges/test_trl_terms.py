"""Where TRL's terms of the loss are others than ours, token by token; the list with the reasons is ``README.md``."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from rlagents.methods import dual_clip_surrogate, fact, penalty, weighted_surrogate
from rlagents.numerics import LOG_RATIO_BOUND, log_ratio
from tests.judges.differing import (
    BNPO_K3,
    BNPO_K3_OPTIONS,
    CLIPPED,
    DAPO,
    DAPO_OPTIONS,
    assert_differ,
    batch_of,
    by_tokens,
    put,
    seeds,
)
from tests.judges.trl_cases import ADVANTAGE
from tests.judges.trl_judge import assert_agree, filled, ours, theirs
from tests.methods.batches import SHAPE, make_batch


def _k3_times_ratio(logprobs, credit, masks):
    k3 = jnp.expm1(log_ratio(logprobs.reference, logprobs.policy)) - logprobs.reference + logprobs.policy
    return 0.04 * k3 * jnp.exp(log_ratio(logprobs.policy, fact("k3_times_ratio", logprobs, "old"))), {}


CISPO = {bound: by_tokens(ADVANTAGE, weighted_surrogate(1.0, bound)) for bound in (0.2, 1.2)}
DUAL_CLIP = by_tokens(ADVANTAGE, dual_clip_surrogate(0.2, 0.1, 1.28))
KL_TIMES_RATIO = by_tokens(ADVANTAGE, CLIPPED, penalty("k3_times_ratio", _k3_times_ratio, {"reference"}))


@seeds
def test_bound_of_cispo(seed):
    """TRL's ``epsilon_high`` is the greatest weight, ours its distance from 1."""
    batch = batch_of(seed)
    judge = theirs({"loss_type": "cispo", "epsilon_high": 1.2}, batch)
    assert_differ(ours(CISPO[1.2], batch), judge)
    assert_agree(ours(CISPO[0.2], batch), judge)


@seeds
def test_bound_of_the_log_ratio(seed):
    """TRL's loss is ours where ``old`` is within 20 nats of the policy; beyond, our gradient is 0."""
    batch = batch_of(seed, spread=0.1)
    logprobs, *said = batch
    advantages = ours(DAPO, batch).advantages
    far = np.zeros(advantages.shape, bool)
    far[np.unravel_index(np.argmin(advantages), far.shape)] = True  # no clip binds: A < 0 and the ratio is large

    def at(nats):
        return replace(logprobs, old=put(logprobs.old, far, logprobs.policy - nats)), *said

    verdict, judge = ours(DAPO, at(30)), theirs(DAPO_OPTIONS, at(30))
    assert judge.loss > 1e10 > verdict.loss > 1e6
    judge = theirs(DAPO_OPTIONS, at(LOG_RATIO_BOUND))
    assert verdict.loss == pytest.approx(judge.loss, rel=1e-5)
    assert (judge.policy[far] > 1e6).all()
    assert (verdict.policy[far] == 0).all()
    assert_agree(verdict, judge._replace(losses=verdict.losses, policy=put(judge.policy, far, 0)))


@seeds
def test_kl_times_the_ratio(seed):
    """TRL's default KL is k3 times the ratio, through which gradient flows: a penalty of one line."""
    batch = batch_of(seed)
    judge = theirs({**BNPO_K3_OPTIONS, "use_bias_correction_kl": True}, batch)
    assert_differ(ours(BNPO_K3, batch), judge)
    assert_agree(ours(KL_TIMES_RATIO, batch), judge)


@seeds
def test_digits_of_a_small_kl(seed):
    """TRL's ``exp(d) - d - 1`` is rounded at the size of 1, in which a k3 of 1e-8 is lost."""
    batch = batch_of(seed, spread=1e-4)
    logprobs, _, masks = batch
    d = (logprobs.reference.astype(np.float64) - logprobs.policy)[masks.trainable]
    exact = np.mean(np.expm1(d) - d)
    assert 0 < exact < 1e-7
    mine, judge = (run.metrics["kl"] for run in (ours(BNPO_K3, batch), theirs(BNPO_K3_OPTIONS, batch)))
    assert mine == pytest.approx(exact, rel=1e-2)
    assert judge == pytest.approx(exact, abs=1e-7)
    assert abs(judge - exact) > 0.1 * exact


@seeds
def test_delta_within_the_clip(seed):
    """Of a ``delta`` below ``1 + epsilon_high`` TRL makes the upper clip, and of that the dual clip; we refuse it."""
    with pytest.raises(ValueError, match="expected more than 1 \\+ clip_high"):
        dual_clip_surrogate(0.2, 0.28, 1.1)
    batch = batch_of(seed)
    judge = theirs({**DAPO_OPTIONS, "delta": 1.1}, batch)
    assert_differ(ours(DAPO, batch), judge)
    assert_agree(ours(DUAL_CLIP, batch), judge)


@seeds
def test_nan_off_the_mask(seed):
    """TRL multiplies by the mask, ours selects: with 0 for NaN both are one."""
    batch = make_batch(seed, SHAPE, spread=0.5, rewards="continuous", invalid=0.3)
    verdict = ours(BNPO_K3, batch)
    assert np.isnan(theirs(BNPO_K3_OPTIONS, batch).loss)
    assert_agree(verdict, theirs(BNPO_K3_OPTIONS, filled(batch)))
