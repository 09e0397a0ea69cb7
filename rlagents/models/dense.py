"""The plain XLA attention backend: all logits ``[b g h q s]`` at once."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlagents.models.attention import Backend, Outcome, Partial, Queries, Source, Window


class _Fold(NamedTuple):
    """How ``g`` members with ``h`` heads line up with ``x`` sources of ``c`` key-value heads.

    Each source and key-value head meets ``n`` queries: those of ``h / c`` heads of ``g / x`` members. The products keep
    to one free axis a side, which is what XLA runs without transposing the keys first.
    """

    g: int
    h: int
    x: int
    c: int

    @classmethod
    def of(cls, queries: Queries, source: Source) -> "_Fold":
        return cls(*queries.query.shape[1:3], *source.key.shape[1:3])

    def __call__(self, by_query: Array) -> Array:
        """``[b g h q ..] -> [b x c n ..]``."""
        b, _, _, _, *rest = by_query.shape
        if self.g != self.x:
            by_query = jnp.swapaxes(by_query, 1, 2)
        return by_query.reshape(b, self.x, self.c, -1, *rest)

    def undo(self, folded: Array) -> Array:
        """``[b x c n ..] -> [b g h q ..]``."""
        b, _, _, _, *rest = folded.shape
        if self.g == self.x:
            return folded.reshape(b, self.g, self.h, -1, *rest)
        return jnp.swapaxes(folded.reshape(b, self.h, self.g, -1, *rest), 1, 2)

    def seen(self, queries: Queries, source: Source, window: Window) -> Bool[Array, "b x 1 n s"]:
        """Which query sees which key."""
        b = queries.position.shape[0]
        position = queries.position.reshape(b, self.x, 1, 1, -1)
        position = jnp.repeat(position, self.h // self.c, axis=3).reshape(b, self.x, 1, -1, 1)
        distance = position - source.position[:, :, None, None, :]
        return distance >= 0 if window is None else (distance >= 0) & (distance < window)


Logits = Callable[[float, Float[Array, "b x c n k"], Float[Array, "b x c s k"]], Float[Array, "b x c n s"]]
"""``(scale, queries, keys) -> scale * query . key``, float32."""


def _logits(scale: float, query: Float[Array, "b x c n k"], key: Array) -> Float[Array, "b x c n s"]:
    query = query * jnp.asarray(scale, query.dtype)
    return jnp.einsum("bxcnk,bxcsk->bxcns", query, key, preferred_element_type=jnp.float32)


def _forward(logits_of: Logits, scale: float, queries: Queries, source: Source, window: Window) -> Partial:
    fold = _Fold.of(queries, source)
    logits = logits_of(scale, fold(queries.query), source.key)
    seen = fold.seen(queries, source, window)
    maximum = jnp.max(logits, axis=-1, keepdims=True, where=seen, initial=-1e30)
    weights = jnp.where(seen, jnp.exp(logits - maximum), 0.0)
    numerator = jnp.einsum(
        "bxcns,bxcsk->bxcnk", weights.astype(source.value.dtype), source.value, preferred_element_type=jnp.float32
    )
    return Partial(fold.undo(numerator), fold.undo(maximum[..., 0]), fold.undo(jnp.sum(weights, axis=-1)))


def _backward(scale: float, queries: Queries, source: Source, window: Window, outcome: Outcome):
    fold, (key, value, _) = _Fold.of(queries, source), source
    query, log_normalizer, d_out, delta = (fold(x) for x in (queries.query, *outcome))
    logits = _logits(scale, query, key)
    p = jnp.where(fold.seen(queries, source, window), jnp.exp(logits - log_normalizer[..., None]), 0.0)
    d_p = jnp.einsum("bxcnk,bxcsk->bxcns", d_out, value, preferred_element_type=jnp.float32)
    d_logits = (scale * p * (d_p - delta[..., None])).astype(query.dtype)
    d_query = jnp.einsum("bxcns,bxcsk->bxcnk", d_logits, key)
    d_key = jnp.einsum("bxcns,bxcnk->bxcsk", d_logits, query)
    d_value = jnp.einsum("bxcns,bxcnk->bxcsk", p.astype(d_out.dtype), d_out)
    return fold.undo(d_query), d_key, d_value


def dense_with(logits_of: Logits) -> Backend:
    """The backend whose forward pass takes its logits from ``logits_of``."""
    return Backend(partial(_forward, logits_of), _backward)


dense = dense_with(_logits)
