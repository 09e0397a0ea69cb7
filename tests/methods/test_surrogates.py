"""Surrogates beside PPO's clip: values and slopes against their oracles, and the gradient at policy == old."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from rlagents.methods import (
    chain,
    dual_clip_surrogate,
    gradient_keeping_surrogate,
    group_advantage,
    method,
    policy_gradient,
    sequence_mean,
    sequence_surrogate,
    sequence_surrogate_by_token,
    weighted_surrogate,
)
from rlagents.numerics import LOG_RATIO_BOUND
from tests.methods.batches import laws
from tests.methods.harness import assert_close
from tests.methods.test_oracles import computed, drawn, precisions
from tests.oracles import reductions
from tests.oracles import surrogates as oracle

CLIP = {"clip_low": 0.2, "clip_high": 0.28}
CASES = {
    "policy_gradient": (policy_gradient(), oracle.policy_gradient, {}),
    "dual_clip": (dual_clip_surrogate(0.2, 0.28, 3.0), oracle.dual_clip, CLIP | {"most": 3.0}),
    "weighted": (weighted_surrogate(0.2, 0.28), oracle.truncated_weight, CLIP),
    "gradient_keeping": (gradient_keeping_surrogate(0.2, 0.28), oracle.gradient_keeping, CLIP),
    "sequence": (sequence_surrogate(0.2, 0.28), oracle.sequence, CLIP),
    "sequence_by_token": (sequence_surrogate_by_token(0.2, 0.28), oracle.sequence_by_token, CLIP),
}
METHODS = {
    name: method(chain(group_advantage(ddof=0, epsilon=1e-6), stage), sequence_mean())
    for name, (stage, _, _) in CASES.items()
}


@precisions
@pytest.mark.parametrize("name", CASES)
@laws
@given(batch=drawn())
def test_surrogates(tolerance, name, batch):
    logprobs, _, masks = batch
    out = computed(METHODS[name], batch, tolerance)
    _, expected, options = CASES[name]
    terms, slopes = expected(
        logprobs.policy, logprobs.old, out.credit.advantages, masks.trainable, bound=LOG_RATIO_BOUND, **options
    )
    weights = reductions.sequence_mean(masks.trainable)
    assert_close(out.loss, (weights * terms).sum(), relative=tolerance, floor=np.abs(weights * terms).sum() + 1e-3)
    assert_close(out.gradients[0].policy, weights * slopes, relative=tolerance, floor=1e-3)


@pytest.mark.parametrize("name", CASES)
@laws
@given(batch=drawn(spread=0.0))
def test_at_policy_equal_to_old_the_gradient_is_minus_measure_times_advantage(name, batch):
    logprobs, rewards, masks = batch
    out = computed(METHODS[name], (replace(logprobs, old=logprobs.policy), rewards, masks), 1e-12)
    assert_close(out.gradients[0].policy, -out.measures.shared * out.credit.advantages, relative=1e-12, floor=1e-3)


def test_what_makes_no_surrogate_is_refused():
    for make, says in (
        (lambda: dual_clip_surrogate(0.2, 0.28, 1.2), "most=1.2"),
        (lambda: weighted_surrogate(0.0, 0.2), "weighted_surrogate.clip_low=0.0"),
        (lambda: gradient_keeping_surrogate(0.2, -1.0), "clip_high=-1.0"),
        (lambda: sequence_surrogate(1.2, 0.2), "sequence_surrogate.clip_low=1.2"),
        (lambda: sequence_surrogate_by_token(0.2, 0.0), "sequence_surrogate_by_token.*clip_high=0.0"),
    ):
        with pytest.raises(ValueError, match=says):
            make()
