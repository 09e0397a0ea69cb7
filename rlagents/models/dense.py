"""The plain XLA attention backend: all logits ``[b g h q s]`` at once."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlagents.models.attention import Backend, Outcome, Partial, Queries, Source, Window


class _Shape(NamedTuple):
    """How queries line up with a source: ``x`` sources a batch, ``c`` key-value heads with ``r`` query heads each."""

    g: int
    x: int
    c: int

    @classmethod
    def of(cls, queries: Queries, source: Source) -> "_Shape":
        return cls(queries.query.shape[1], source.key.shape[1], source.key.shape[2])

    def fold(self, by_query: Array) -> Array:
        """``[b g h q ..] -> [b x c r q' ..]``; queries of all members that share a source follow each other."""
        b, g, h, q, *rest = by_query.shape
        if g != self.x:
            by_query = jnp.swapaxes(by_query, 1, 2)
        return by_query.reshape(b, self.x, self.c, h // self.c, (g // self.x) * q, *rest)

    def unfold(self, folded: Array) -> Array:
        """Undo ``fold``."""
        b, x, c, r, q, *rest = folded.shape
        if self.g == x:
            return folded.reshape(b, x, c * r, q, *rest)
        return jnp.swapaxes(folded.reshape(b, c * r, self.g, q // self.g, *rest), 1, 2)


def _seen(queries: Queries, source: Source, window: Window) -> Bool[Array, "b x 1 1 q s"]:
    b, x = source.position.shape[:2]
    distance = queries.position.reshape(b, x, -1, 1) - source.position[:, :, None, :]
    seen = distance >= 0 if window is None else (distance >= 0) & (distance < window)
    return seen[:, :, None, None]


def _logits(scale: float, query: Array, key: Array) -> Float[Array, "b x c r q s"]:
    query = query * jnp.asarray(scale, query.dtype)
    return jnp.einsum("bxcrqk,bxcsk->bxcrqs", query, key, preferred_element_type=jnp.float32)


def _forward(scale: float, queries: Queries, source: Source, window: Window) -> Partial:
    shape = _Shape.of(queries, source)
    logits = _logits(scale, shape.fold(queries.query), source.key)
    seen = _seen(queries, source, window)
    maximum = jnp.max(logits, axis=-1, keepdims=True, where=seen, initial=-1e30)
    weights = jnp.where(seen, jnp.exp(logits - maximum), 0.0)
    numerator = jnp.einsum(
        "bxcrqs,bxcsk->bxcrqk", weights.astype(source.value.dtype), source.value, preferred_element_type=jnp.float32
    )
    denominator = jnp.sum(weights, axis=-1)
    return Partial(shape.unfold(numerator), shape.unfold(maximum[..., 0]), shape.unfold(denominator))


def _backward(scale: float, queries: Queries, source: Source, window: Window, outcome: Outcome):
    shape, (key, value, _) = _Shape.of(queries, source), source
    query, log_normalizer, d_out, delta = (shape.fold(x) for x in (queries.query, *outcome))
    logits = _logits(scale, query, key)
    p = jnp.where(_seen(queries, source, window), jnp.exp(logits - log_normalizer[..., None]), 0.0)
    d_p = jnp.einsum("bxcrqk,bxcsk->bxcrqs", d_out, value, preferred_element_type=jnp.float32)
    d_logits = (scale * p * (d_p - delta[..., None])).astype(query.dtype)
    d_query = jnp.einsum("bxcrqs,bxcsk->bxcrqk", d_logits, key)
    d_key = jnp.einsum("bxcrqs,bxcrqk->bxcsk", d_logits, query)
    d_value = jnp.einsum("bxcrqs,bxcrqk->bxcsk", p.astype(d_out.dtype), d_out)
    return shape.unfold(d_query), d_key, d_value


dense = Backend(_forward, _backward)
