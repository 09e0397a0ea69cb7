"""Attention over several sources of keys and values with one softmax.

A query may look at a prefix that it shares with other queries and at keys of its own. Each source is attended to where
it lies and gives a partial result; ``merge`` joins the partials as if the keys had been concatenated:

    m = max_i m_i,   out = sum_i exp(m_i - m) numerator_i / sum_i exp(m_i - m) denominator_i

A query sees a key when ``key position <= query position`` and ``query position - key position < window``. That one rule
covers causality, sliding windows and padding, whose position is ``NOWHERE``.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

NOWHERE = jnp.iinfo(jnp.int32).max
"""Position of a key that no query may see."""


class Queries(NamedTuple):
    """Rotated queries and their absolute positions."""

    query: Float[Array, "*batch q h k"]
    position: Int[Array, "*batch q"]


class Source(NamedTuple):
    """Rotated keys, values and the keys' absolute positions; ``h`` is a multiple of the key-value heads ``c``.

    Heads come before positions: that is how the products read a cache without transposing it.
    """

    key: Float[Array, "*batch c s k"]
    value: Float[Array, "*batch c s k"]
    position: Int[Array, "*batch s"]


class Partial(NamedTuple):
    """Softmax attention over one source before the division, float32. ``maximum`` carries no gradient."""

    numerator: Float[Array, "*batch q h k"]
    maximum: Float[Array, "*batch q h"]
    denominator: Float[Array, "*batch q h"]


Window = int | Int[Array, ""] | None
Backend = Callable[[Queries, Source, float, Window], Partial]


def dense(queries: Queries, source: Source, scale: float, window: Window) -> Partial:
    """Plain XLA: all logits ``[*batch h q s]`` at once, in float32."""
    *batch, q, h, k = queries.query.shape
    c = source.key.shape[-3]
    query = (queries.query * jnp.asarray(scale, queries.query.dtype)).reshape(*batch, q, c, h // c, k)
    scores = jnp.einsum("...qcrk,...csk->...crqs", query, source.key, preferred_element_type=jnp.float32)
    distance = queries.position[..., :, None] - source.position[..., None, :]
    seen = distance >= 0 if window is None else (distance >= 0) & (distance < window)
    seen = seen[..., None, None, :, :]
    maximum = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True, where=seen, initial=-1e30))
    weights = jnp.where(seen, jnp.exp(jnp.where(seen, scores - maximum, 0.0)), 0.0)
    numerator = jnp.einsum(
        "...crqs,...csk->...qcrk", weights.astype(source.value.dtype), source.value, preferred_element_type=jnp.float32
    )

    def per_head(x: Array) -> Array:
        return jnp.moveaxis(x, -1, -3).reshape(*batch, q, h)

    return Partial(numerator.reshape(*batch, q, h, k), per_head(maximum[..., 0]), per_head(jnp.sum(weights, axis=-1)))


def merge(partials: Sequence[Partial]) -> Float[Array, "*batch q h k"]:
    """The softmax average over all sources, float32. Every query must see at least one key."""
    maximum = functools.reduce(jnp.maximum, [partial.maximum for partial in partials])
    weights = [jnp.exp(partial.maximum - maximum) for partial in partials]
    numerators = [weight[..., None] * partial.numerator for weight, partial in zip(weights, partials)]
    denominators = [weight * partial.denominator for weight, partial in zip(weights, partials)]
    return functools.reduce(jnp.add, numerators) / functools.reduce(jnp.add, denominators)[..., None]
