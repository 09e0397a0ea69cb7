import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.models.attention import NOWHERE, OwnTokens, Queries, Source, attend
from rlagents.models.blockwise import blockwise
from rlagents.models.causal import in_causal_parts
from rlagents.models.dense import dense
from tests.effort import draws
from tests.models.tiny import array_sizes, relative_error
from tests.oracles import decoder as oracle

SCALE = 0.3


def random_case(seed, *, b=2, g=3, h=4, c=2, q=5, s=6, k=8):
    """Queries with a shared prefix of ragged length and keys of their own, as in training."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    length = rng.integers(0, s + 1, b)
    prefix_position = np.where(np.arange(s) < length[:, None], np.arange(s), NOWHERE)[:, None]
    own_position = np.broadcast_to(length[:, None, None] + np.arange(q), (b, g, q))
    queries = Queries(normal(b, g, h, q, k), jnp.asarray(own_position, jnp.int32))
    shared = Source(normal(b, 1, c, s, k), normal(b, 1, c, s, k), jnp.asarray(prefix_position, jnp.int32))
    own = OwnTokens(normal(b, g, c, q, k), normal(b, g, c, q, k), queries.position)
    return queries, (shared, own)


def oracle_attend(queries, sources, window):
    b, g, h, q, k = queries.query.shape
    out = np.zeros((b, g, h, q, k))
    for i, j, head in np.ndindex(b, g, h):
        parts = [(s.key, s.value, s.position, j if s.key.shape[1] == g else 0) for s in sources]
        kv_head = head // (h // sources[0].key.shape[2])
        out[i, j, head] = oracle.attention(
            np.asarray(queries.query[i, j, head]),
            queries.position[i, j],
            [np.asarray(key[i, x, kv_head]) for key, _, _, x in parts],
            [np.asarray(value[i, x, kv_head]) for _, value, _, x in parts],
            [np.asarray(position[i, x]) for _, _, position, x in parts],
            scale=SCALE,
            window=window,
        )
    return out


def naive_attend(queries, sources, window):
    """The same by concatenation, for its gradient."""
    b, g, h = queries.query.shape[:3]

    def spread(x):
        return jnp.broadcast_to(x, (b, g, *x.shape[2:]))

    key, value = (jnp.concatenate([spread(s[i]) for s in sources], axis=3) for i in (0, 1))
    position = jnp.concatenate([spread(s.position) for s in sources], axis=2)
    key, value = (jnp.repeat(x, h // x.shape[2], axis=2) for x in (key, value))
    distance = (queries.position[..., :, None] - position[..., None, :])[:, :, None]
    seen = (distance >= 0) & (distance < (NOWHERE if window is None else window))
    logits = jnp.where(seen, SCALE * jnp.einsum("bghqk,bghsk->bghqs", queries.query, key), -jnp.inf)
    return jnp.einsum("bghqs,bghsk->bghqk", jax.nn.softmax(logits, axis=-1), value)


@functools.partial(jax.jit, static_argnums=(0, 3))
def run(backend, queries, sources, window):
    return attend(backend, SCALE, queries, sources, window)


BACKENDS = {
    "dense": dense,
    "blocks of 2": blockwise(1, least_positions=2),
    "one block": blockwise(2**20),
    "parts": in_causal_parts(3, dense, least_positions=1),
    "parts in blocks": in_causal_parts(2, blockwise(1, least_positions=2), least_positions=2),
}


@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_the_definition(backend, window):
    queries, sources = random_case(0)
    out = run(BACKENDS[backend], queries, sources, window)
    np.testing.assert_allclose(out, oracle_attend(queries, sources, window), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("backend", "window"), [("dense", None), ("dense", 3), ("blocks of 2", 3), ("parts", None), ("parts in blocks", 3)]
)
def test_gradient_equals_that_of_concatenation(backend, window):
    queries, sources = random_case(1)
    weight = jnp.asarray(np.random.default_rng(2).normal(size=queries.query.shape), jnp.float32)

    def loss(function, query, keys_and_values):
        these = tuple(type(source)(*kv, source.position) for kv, source in zip(keys_and_values, sources))
        return jnp.sum(weight * function(Queries(query, queries.position), these, window))

    def gradient(function):
        arrays = queries.query, [(source.key, source.value) for source in sources]
        return jax.jit(jax.grad(functools.partial(loss, function), (0, 1)))(*arrays)

    ours = gradient(functools.partial(run, BACKENDS[backend]))
    assert relative_error(ours, gradient(naive_attend)) < 1e-5


@settings(max_examples=draws(30), deadline=None)
@given(seed=st.integers(0, 1000), shape=st.sampled_from([(1, 1, 4), (2, 4, 1), (3, 2, 3)]))
def test_equals_the_definition_for_any_grouping(seed, shape):
    g, c, s = shape
    queries, sources = random_case(seed, g=g, c=c, s=s, q=3, k=2)
    out = run(dense, queries, sources, None)
    np.testing.assert_allclose(out, oracle_attend(queries, sources, None), rtol=2e-5, atol=2e-6)


def test_large_logits_do_not_overflow():
    queries, sources = random_case(3)
    queries = queries._replace(query=1e4 * queries.query)
    out = run(dense, queries, sources, None)
    np.testing.assert_allclose(out, oracle_attend(queries, sources, None), rtol=1e-3, atol=1e-3)


def test_the_prefix_is_not_copied_to_members():
    queries, sources = random_case(4, b=1, g=50, q=1, s=100, h=2, c=2, k=8)
    copies = 50 * 100 * 2 * 8
    jaxpr = jax.make_jaxpr(lambda *xs: attend(dense, SCALE, *xs, None))(queries, sources)
    assert max(array_sizes(jaxpr.jaxpr)) < copies
