"""Prefill and extend: fed in pieces or at once, with or without company, the same hidden states and cache."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.models import empty_kv, extend, logits, prefill, token_log_probs
from tests.effort import draws
from tests.models.tiny import GEMMA3, random_params, random_sequences, relative_error

CAPACITY = 8
WIDTH = 3
"""Tokens a row is fed at most in one call."""


@functools.partial(jax.jit, static_argnums=0)
def prefill_(config, params, tokens, lengths):
    return prefill(config, params, tokens, lengths)


@functools.partial(jax.jit, static_argnums=(0, 1))
def extend_(config, max_rows, params, *args):
    hidden, own = extend(config, params, *args, max_rows_per_prefix=max_rows)
    return logits(config, params, hidden), own


class Case:
    def __init__(self, config):
        self.config, self.params = config, random_params(config)
        sequences = random_sequences(config, seed=3)
        self.sequences = sequences
        self.prefix = prefill_(config, self.params, sequences.prefix, sequences.prefix_length)
        self.group = jnp.repeat(jnp.arange(2), 3)
        self.tokens = np.asarray(sequences.tokens).reshape(6, 6)
        self.length = np.asarray(sequences.length).reshape(6)

    def empty(self):
        return empty_kv(self.config, 6, CAPACITY)

    def extend(self, tokens, counts, own, own_length, *, group=None, max_rows=3):
        fed = jnp.asarray(tokens), jnp.asarray(counts), own, jnp.asarray(own_length)
        group = self.group if group is None else group
        return extend_(self.config, max_rows, self.params, *fed, self.prefix, self.sequences.prefix_length, group)

    def in_pieces(self, pieces):
        """Logits ``[6 6 v]`` and cache: row ``r`` gets ``pieces[i][r]`` tokens in call ``i``, the rest one by one."""
        own, fed = self.empty(), np.zeros(6, int)
        out = np.zeros((6, 6, self.config.vocab_size), np.float32)
        calls = 0
        while np.any(fed < self.length):
            wanted = pieces[calls] if calls < len(pieces) else np.ones(6, int)
            counts = np.minimum(wanted, self.length - fed)
            at = np.minimum(fed[:, None] + np.arange(WIDTH), 5)
            z, own = self.extend(np.take_along_axis(self.tokens, at, axis=1), counts, own, fed)
            for row in range(6):
                out[row, fed[row] : fed[row] + counts[row]] = z[row, : counts[row]]
            fed += counts
            calls += 1
        return out, own


@pytest.fixture(scope="module")
def gemma3():
    return Case(GEMMA3)


def test_token_by_token_equals_token_log_probs(gemma3):
    case = gemma3
    run = jax.jit(lambda params, sequences: token_log_probs(case.config, params, sequences, 0.7))
    expected, _ = run(case.params, case.sequences)
    log_p = jax.nn.log_softmax(_one_by_one(case)[0] / 0.7)
    at_next = np.take_along_axis(np.asarray(log_p[:, :-1]), case.tokens[:, 1:, None], axis=2)[..., 0]
    real = np.arange(1, 6) < case.length[:, None]
    assert relative_error(np.where(real, at_next, 0), expected.reshape(6, 6)[:, 1:]) < 1e-5


@settings(max_examples=draws(20), deadline=None)
@given(pieces=st.lists(st.lists(st.integers(0, WIDTH), min_size=6, max_size=6), max_size=4))
def test_any_pieces_equal_token_by_token(gemma3, pieces):
    expected, expected_own = _one_by_one(gemma3)
    out, own = gemma3.in_pieces([np.array(piece) for piece in pieces])
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=2e-5)
    for x, y in zip(own, expected_own):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5)


@functools.cache
def _one_by_one(case):
    return case.in_pieces([])


def test_rows_without_tokens_change_nothing(gemma3):
    _, own = _one_by_one(gemma3)
    _, after = gemma3.extend(gemma3.tokens[:, :WIDTH], np.zeros(6, int), own, gemma3.length)
    jax.tree.map(np.testing.assert_array_equal, after, own)


def test_what_exceeds_the_capacity_is_dropped(gemma3):
    _, own = _one_by_one(gemma3)
    _, after = gemma3.extend(gemma3.tokens[:, :WIDTH], np.full(6, 3), own, np.full(6, CAPACITY - 1))
    for x, y in zip(after, own):
        np.testing.assert_array_equal(x[:, :, :, : CAPACITY - 1], y[:, :, :, : CAPACITY - 1])
        assert np.all(np.any(np.asarray(x != y)[:, :, :, -1], axis=(0, 2, 3)))


def test_order_of_rows_and_a_loose_bound_change_nothing(gemma3):
    order = np.array([4, 0, 5, 2, 1, 3])
    counts = np.array([3, 2, 1, 3, 3, 1])
    straight, _ = gemma3.extend(gemma3.tokens[:, :3], counts, gemma3.empty(), np.zeros(6, int))
    mixed, _ = gemma3.extend(
        gemma3.tokens[order, :3],
        counts[order],
        gemma3.empty(),
        np.zeros(6, int),
        group=gemma3.group[order],
        max_rows=None,
    )
    real = np.arange(3) < counts[order][:, None]
    np.testing.assert_allclose(np.asarray(mixed)[real], np.asarray(straight)[order][real], rtol=2e-5, atol=2e-5)


def test_rows_beyond_the_bound_are_nan_and_rows_of_no_slot_finite(gemma3):
    group = jnp.array([0, 0, 0, 1, 9, 9])
    z, _ = gemma3.extend(gemma3.tokens[:, :3], np.full(6, 3), gemma3.empty(), np.zeros(6, int), group=group, max_rows=2)
    finite = np.all(np.isfinite(z), axis=(1, 2))
    np.testing.assert_array_equal(finite, [True, True, False, True, True, True])
