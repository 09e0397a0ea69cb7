"""How far the policy has come: against NumPy, whatever the mask hides, and however a batch is cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.learner.distances import distances
from rlagents.learner.slices import add, sum_over, zeros_like_sum
from rlagents.numerics import LOG_RATIO_BOUND
from rlagents.types import Largest, Mean
from tests.effort import draws

SHAPE = (3, 2, 5)


def log_probs(seed, spread=1.0):
    rng = np.random.default_rng(seed)
    policy = -rng.random(SHAPE)
    old, rollout = (policy + spread * rng.normal(size=SHAPE) for _ in range(2))
    return policy.astype(np.float32), old.astype(np.float32), rollout.astype(np.float32), rng.random(SHAPE) < 0.6


def value(metrics):
    return {name: float(metric.value) for name, metric in metrics.items()}


@pytest.mark.parametrize("spread", [0.0, 1e-3, 1.0, 30.0])
def test_distances_are_those_of_numpy(spread):
    policy, old, rollout, trained = log_probs(1, spread)
    found = value(distances(policy, old, rollout, trained))
    to_old, to_rollout = (np.clip(np.float64(policy) - x, -LOG_RATIO_BOUND, LOG_RATIO_BOUND) for x in (old, rollout))
    assert found == {
        "policy_ratio_max": pytest.approx(np.exp(to_old[trained]).max(), rel=1e-5),
        "rollout_kl": pytest.approx((np.expm1(to_rollout) - to_rollout)[trained].mean(), rel=1e-4, abs=1e-7),
        "rollout_gap": pytest.approx(np.abs(np.float64(policy) - rollout)[trained].mean(), rel=1e-5),
    }


def test_what_the_mask_hides_is_not_looked_at_and_nothing_is_differentiated():
    policy, old, rollout, trained = log_probs(2)
    hidden = (jnp.where(trained, x, jnp.nan) for x in (policy, old, rollout))
    assert value(distances(*hidden, trained)) == value(distances(policy, old, rollout, trained))
    nothing = value(distances(policy, old, rollout, np.zeros(SHAPE, bool)))
    assert nothing == {"policy_ratio_max": 0.0, "rollout_kl": 0.0, "rollout_gap": 0.0}

    def total(policy):
        return sum(metric.value for metric in distances(policy, old, rollout, trained).values())

    assert not np.any(jax.grad(total)(policy))


def test_a_log_probability_that_is_no_number_is_seen():
    policy, old, rollout, trained = log_probs(3)
    policy[trained] = np.where(np.arange(trained.sum()) == 1, np.nan, policy[trained])
    assert all(np.isnan(x) for x in value(distances(policy, old, rollout, trained)).values())


@given(st.integers(0, 2**16), st.permutations(range(3)))
@settings(deadline=None, max_examples=draws(20))
def test_the_largest_of_pieces_is_the_largest_of_all(seed, order):
    policy, old, rollout, trained = log_probs(seed)
    whole = distances(policy, old, rollout, trained)
    pieces = [distances(*(x[row : row + 1] for x in (policy, old, rollout, trained))) for row in order]
    total = zeros_like_sum(lambda: pieces[0])
    for piece in pieces:
        total = add(total, piece)
    for name, metric in value(total).items():
        assert metric == pytest.approx(float(whole[name].value), rel=1e-5, abs=1e-7)
    assert float(total["policy_ratio_max"].value) == float(whole["policy_ratio_max"].value)


def test_a_sum_over_pieces_takes_means_and_largest_together():
    x = jnp.arange(12.0).reshape(4, 3)

    def of_piece(piece):
        return {"mean": Mean.of(piece, piece > 1), "most": Largest.of(piece, piece < 10), "sum": piece.sum()}

    found = sum_over(of_piece, x)
    assert (float(found["mean"].value), float(found["most"].value), float(found["sum"])) == (6.5, 9.0, 66.0)
    assert Largest.of(jnp.ones(2, jnp.bfloat16), jnp.ones(2, bool)).value.dtype == jnp.float32
