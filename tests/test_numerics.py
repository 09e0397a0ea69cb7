"""Numerics against NumPy in float64, with NaN under the mask, and their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents import numerics
from rlagents.types import Mean
from tests.effort import draws

some = settings(max_examples=draws(40), deadline=None, derandomize=True, database=None)
seeds = st.integers(0, 2**32 - 1)


def sample(seed, shape=(3, 5), offset=0.0):
    rng = np.random.default_rng(seed)
    where = rng.random(shape) < 0.6
    x = (offset + rng.normal(size=shape)).astype(np.float32)
    return np.where(where, x, np.nan).astype(np.float32), where


@some
@given(seeds, st.sampled_from([0.0, 50.0, 5000.0]), st.sampled_from([0, 1]))
def test_masked_statistics(seed, offset, ddof):
    x, where = sample(seed, offset=offset)
    for axis in (-1, 0):
        mean = np.zeros(x.shape[1 + axis if axis else 1])
        variance, center = np.zeros_like(mean), np.zeros(x.shape)
        for i in range(len(mean)):
            at = (i, slice(None)) if axis == -1 else (slice(None), i)
            kept = x[at][where[at]].astype(np.float64)
            if len(kept):
                mean[i] = kept.mean()
                center[at] = np.where(where[at], x[at] - kept.mean(), 0)
            if len(kept) > ddof:
                variance[i] = kept.var(ddof=ddof)
        floored = np.where(np.sqrt(variance) > 1e-6 * np.abs(mean), np.sqrt(variance), 0)
        np.testing.assert_allclose(numerics.masked_mean(x, where, axis=axis), mean, rtol=2e-6)
        np.testing.assert_allclose(numerics.masked_variance(x, where, axis=axis, ddof=ddof), variance, rtol=2e-5)
        np.testing.assert_allclose(numerics.masked_std(x, where, axis=axis, ddof=ddof), floored, rtol=2e-5)
        np.testing.assert_allclose(numerics.masked_center(x, where, axis=axis), center, atol=2e-6)
        np.testing.assert_allclose(numerics.masked_count(where, axis=axis), where.sum(axis))


def test_masked_std_of_rounding_residue_is_zero_and_of_the_smallest_real_spread_is_not():
    equal = jnp.full((1, 7), 0.1)
    spread = equal.at[0, 0].add(1e-5)
    everywhere = jnp.ones((1, 7), bool)
    for ddof in (0, 1):
        assert numerics.masked_std(equal, everywhere, axis=-1, ddof=ddof) == 0
        assert numerics.masked_std(spread, everywhere, axis=-1, ddof=ddof) > 0
        assert numerics.masked_std(spread, everywhere, axis=-1, ddof=ddof, relative_floor=1e-3) == 0


def test_masked_std_differentiates_to_something_finite_everywhere():
    x, where = sample(0)
    x[1] = 3.0
    gradient = jax.grad(lambda x: numerics.masked_std(x, where, axis=-1, ddof=0).sum())(x)
    assert np.isfinite(gradient).all()
    assert (gradient[~where] == 0).all()
    assert (gradient[1] == 0).all()
    assert np.abs(gradient[0]).max() > 0


def test_safe_divide_by_zero_is_zero_with_zero_gradient():
    numerator, denominator = jnp.array([1.0, 6.0, 0.0]), jnp.array([0.0, 3.0, 0.0])
    np.testing.assert_array_equal(numerics.safe_divide(numerator, denominator), [0, 2, 0])
    by_both = jax.grad(lambda n, d: numerics.safe_divide(n, d).sum(), argnums=(0, 1))(numerator, denominator)
    np.testing.assert_allclose(by_both[0], [0, 1 / 3, 0], rtol=1e-6)
    np.testing.assert_allclose(by_both[1], [0, -6 / 9, 0], rtol=1e-6)
    assert numerics.safe_divide(True, 4).dtype == jnp.float32


def test_log_ratio_is_clamped_before_exp_so_that_value_and_gradient_stay_finite():
    policy, old = jnp.array([-1.0, 0.0, -500.0, 0.0]), jnp.array([-1.5, 0.0, 0.0, -500.0])
    np.testing.assert_array_equal(numerics.log_ratio(policy, old), [0.5, 0, -20, 20])
    np.testing.assert_array_equal(numerics.log_ratio(policy, old, bound=0.25), [0.25, 0, -0.25, 0.25])
    gradient = jax.grad(lambda p: jnp.exp(numerics.log_ratio(p, old)).sum())(policy)
    np.testing.assert_allclose(gradient, [np.exp(0.5), 1, 0, 0], rtol=1e-6)
    assert jnp.isfinite(jnp.exp(numerics.LOG_RATIO_BOUND) ** 2)


@some
@given(seeds)
def test_turns_to_tokens_and_back(seed):
    rng = np.random.default_rng(seed)
    p, g, t, s = 2, 3, 7, 4
    turn = rng.integers(-1, s + 1, (p, g, t))
    scores, tokens = rng.normal(size=(p, g, s)).astype(np.float32), rng.normal(size=(p, g, t)).astype(np.float32)
    where = rng.random((p, g, t)) < 0.7
    gathered, sums, counts = np.zeros((p, g, t)), np.zeros((p, g, s)), np.zeros((p, g, s))
    for i, j, k in np.ndindex(p, g, t):
        if 0 <= turn[i, j, k] < s:
            gathered[i, j, k] = scores[i, j, turn[i, j, k]]
            if where[i, j, k]:
                sums[i, j, turn[i, j, k]] += tokens[i, j, k]
                counts[i, j, turn[i, j, k]] += 1
    np.testing.assert_array_equal(numerics.turns_to_tokens(scores, turn), gathered.astype(np.float32))
    hidden = np.where(where, tokens, np.nan)
    np.testing.assert_allclose(numerics.tokens_to_turns(hidden, turn, s, where=where), sums, atol=1e-6)
    np.testing.assert_array_equal(numerics.turn_token_counts(turn, s, where=where), counts)


def test_turns_to_tokens_keeps_the_kind_of_value_and_reads_nothing_at_minus_one():
    turn = jnp.array([[-1, 0, 1, 5]])
    flags = numerics.turns_to_tokens(jnp.array([[True, False]]), turn)
    assert flags.tolist() == [[False, True, False, False]]
    assert numerics.turns_to_tokens(jnp.array([[7, 8]]), turn).tolist() == [[0, 7, 8, 0]]
    gradient = jax.grad(lambda x: numerics.turns_to_tokens(x, turn).sum())(jnp.array([[jnp.nan, 1.0]]))
    assert gradient.tolist() == [[1.0, 1.0]]
    outside = jnp.full((1, 4), -1)
    assert numerics.turns_to_tokens(jnp.full((1, 2), jnp.nan), outside).tolist() == [[0.0] * 4]


@pytest.mark.parametrize("narrow", ["bfloat16", "float16", "float32", "int32", "bool"])
def test_promote_to_at_least_float32(narrow):
    assert numerics.promote(jnp.ones(2, narrow)).dtype == jnp.float32
    with jax.enable_x64(True):
        assert numerics.promote(jnp.ones(2, jnp.float64)).dtype == jnp.float64


def test_mean_adds_across_slices_and_ignores_what_is_hidden():
    x, where = sample(5)
    parts = Mean.of(x[:1], where[:1]) + Mean.of(x[1:], where[1:])
    np.testing.assert_allclose(parts.value, x[where].mean(), rtol=1e-6)
    assert Mean.of(x, np.zeros_like(where)).value == 0
    assert Mean.of(jnp.ones(3, jnp.bfloat16), jnp.ones(3, bool)).total.dtype == jnp.float32


def test_what_is_no_number_has_no_spread_either():
    x, where = jnp.array([[1.0, jnp.nan, 2.0], [1.0, jnp.nan, 1.0]]), jnp.array([[True] * 3, [True, False, True]])
    std = numerics.masked_std(x, where, axis=-1, ddof=0)
    assert jnp.isnan(std[0])
    assert std[1] == 0
