"""The sampling rule against plain NumPy, on logits alone."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from rlagents.sampling.keys import row_keys, token_keys
from rlagents.sampling.rule import SamplingRule, draw
from tests.effort import draws
from tests.sampling.support import log_softmax

ROWS, VOCAB = 64, 11
drawn = jax.jit(draw, static_argnums=0)


def keys(seed: int, rows: int = ROWS):
    return jax.random.split(jax.random.key(seed, impl="threefry2x32"), rows)


def some_logits(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, (ROWS, VOCAB)).astype(np.float32)


def kept_by(rule: SamplingRule, logits: np.ndarray) -> np.ndarray:
    """Which tokens may be drawn; of top-k's survivors, the smallest most likely set that reaches top_p."""
    log_p = log_softmax(logits / rule.temperature)
    kept = np.zeros(logits.shape, bool)
    for row, scores in enumerate(log_p):
        order = np.argsort(-scores)[: rule.top_k]
        p = np.exp(scores[order])
        reached = np.cumsum(p / p.sum())
        size = len(order) if rule.top_p is None else 1 + int(np.sum(reached < rule.top_p - 1e-6))
        kept[row, order[:size]] = True
    return kept


@settings(max_examples=draws(20), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rule=st.sampled_from([SamplingRule(0.7, 3), SamplingRule(1.0, None, 0.6), SamplingRule(0.9, 5, 0.5)]),
)
def test_only_kept_tokens_are_drawn_and_the_full_distribution_is_recorded(seed, rule):
    logits = some_logits(seed)
    token, log_prob = drawn(rule, keys(seed), jnp.asarray(logits))
    assert kept_by(rule, logits)[np.arange(ROWS), token].all()
    expected = log_softmax(logits / rule.temperature)[np.arange(ROWS), token]
    np.testing.assert_allclose(log_prob, expected, atol=2e-5)


@pytest.mark.parametrize("rule", [SamplingRule(1.0, 3), SamplingRule(1.0, None, 0.6)])
def test_every_kept_token_is_drawn_at_times(rule):
    logits = np.repeat(some_logits(0)[:1], 4000, axis=0)
    token, _ = drawn(rule, keys(1, 4000), jnp.asarray(logits))
    assert set(np.asarray(token)) == set(np.flatnonzero(kept_by(rule, logits[:1])[0]))


def test_tokens_that_tie_where_the_nucleus_ends_are_all_kept_and_a_whole_one_keeps_every_token():
    logits = np.log(np.array([[0.4, 0.2, 0.2, 0.15, 0.05]], np.float32)) - 100
    many = jnp.asarray(np.repeat(logits, 4000, axis=0))
    for rule, kept in (
        (SamplingRule(1.0, None, 0.4 - 1e-3), {0}),
        (SamplingRule(1.0, None, 0.5), {0, 1, 2}),
        (SamplingRule(1.0, 3, 0.6), {0, 1, 2}),
        (SamplingRule(1.0, None, 1.0), {0, 1, 2, 3, 4}),
        (SamplingRule(1.0, 1, 0.01), {0}),
    ):
        token, _ = drawn(rule, keys(2, 4000), many)
        assert set(np.asarray(token).tolist()) == kept, rule


def test_nothing_is_sorted():
    logits = jnp.asarray(some_logits(0))
    for rule in (SamplingRule(1.0), SamplingRule(1.0, None, 0.5)):
        assert " sort[" not in str(jax.make_jaxpr(lambda logits, rule=rule: draw(rule, keys(0), logits))(logits))


def test_greedy_takes_the_most_likely_and_records_it_at_temperature_1():
    logits = some_logits(3)
    token, log_prob = drawn(SamplingRule(0.0), keys(0), jnp.asarray(logits))
    np.testing.assert_array_equal(token, logits.argmax(-1))
    np.testing.assert_allclose(log_prob, log_softmax(logits).max(-1), atol=2e-5)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_frequencies_match_the_softmax(temperature):
    """Chi-square: 10 degrees of freedom, the 0.999 quantile is 29.6; the seed is fixed."""
    count = 20_000
    logits = some_logits(5)[:1]
    material = np.zeros((count, 5), np.uint32)
    material[:, 4] = np.arange(count) % 8
    drawn_by = token_keys(row_keys(jnp.asarray(material)), jnp.arange(count) // 8)
    token, _ = drawn(SamplingRule(temperature), drawn_by, jnp.asarray(np.repeat(logits, count, axis=0)))
    expected = count * np.exp(log_softmax(logits[0] / temperature))
    found = np.bincount(np.asarray(token), minlength=VOCAB)
    assert np.sum((found - expected) ** 2 / expected) < 29.6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
    ],
)
def test_impossible_rules_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SamplingRule(**arguments)
