"""Attention of decode steps gives the partial softmax of the usual backend, whatever the shapes, windows and dtypes."""

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from rlagents.models.attention import NOWHERE, Queries, Source
from rlagents.models.blockwise import xla
from rlagents.sampling import device
from rlagents.sampling.attention import few_queries
from rlagents.sampling.keys import StreamKey
from tests.effort import draws
from tests.sampling.support import Script, make_sampler, play

SHAPES = [((2, 3, 2, 2, 1), "float32"), ((3, 1, 1, 2, 2), "bfloat16")]
"""Batches, members, key-value heads, query heads of each, positions; every shape compiles anew."""


@given(shape=st.sampled_from(SHAPES), window=st.sampled_from([None, 1, 3]), seed=st.integers(0, 999))
@settings(max_examples=draws(15), deadline=None)
def test_the_partial_softmax_is_that_of_the_usual_backend(shape, window, seed):
    (b, g, c, each, q), dtype = shape
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), dtype)

    queries = Queries(normal(b, g, c * each, q, 4), jnp.asarray(rng.integers(0, 7, (b, g, q))))
    position = np.where(rng.random((b, 1, 5)) < 0.2, NOWHERE, rng.integers(0, 7, (b, 1, 5)))
    source = Source(normal(b, 1, c, 5, 4), normal(b, 1, c, 5, 4), jnp.asarray(position))
    found, wanted = (backend.forward(0.7, queries, source, window) for backend in (few_queries, xla))
    for one, other in zip(found, wanted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, atol=1e-5 if dtype == "float32" else 2e-2)


def test_a_sampler_without_it_says_the_same(monkeypatch):
    """And computes attention as everywhere else: what it samples holds though the other way round is taken away."""
    script = [Script([[1, 2, 3, 4], [1, 2, 3, 5]], StreamKey(0, 0, 0, 0), replies=[[6, 7]])]
    (with_it,) = play(make_sampler(), script)
    monkeypatch.setattr(device, "few_queries", None)
    (without,) = play(make_sampler(few_query_attention=False), script)
    for one, other in zip(with_it, without, strict=True):
        assert one.sampled == other.sampled
        for (_, first), (_, second) in zip(one.turns, other.turns, strict=True):
            np.testing.assert_allclose(first.log_probs, second.log_probs, atol=1e-5)


def test_members_with_keys_of_their_own_are_refused():
    queries = Queries(jnp.ones((1, 2, 1, 1, 4)), jnp.zeros((1, 2, 1), int))
    source = Source(jnp.ones((1, 2, 1, 3, 4)), jnp.ones((1, 2, 1, 3, 4)), jnp.zeros((1, 2, 3), int))
    with pytest.raises(ValueError, match="2 sources a batch"):
        few_queries.forward(1.0, queries, source, None)
