"""Attention of a decode step: so few queries meet each key that the keys stand on the left of the product."""

import jax
import jax.numpy as jnp

from rlagents.models.attention import Backend, Partial, Queries, Source, Window
from rlagents.models.blockwise import xla


def _forward(scale: float, queries: Queries, source: Source, window: Window) -> Partial:
    (b, g, h, q), c = queries.query.shape[:4], source.key.shape[2]
    if source.key.shape[1] != 1:
        raise ValueError(f"{source.key.shape[1]} sources a batch; the members of a batch must share one")
    each = h // c

    def fold(by_query: jax.Array) -> jax.Array:
        """``[b g h q ..] -> [b c n ..]``, ``n`` queries a key-value head."""
        rest = by_query.shape[4:]
        return jnp.swapaxes(by_query.reshape(b, g, c, each * q, *rest), 1, 2).reshape(b, c, -1, *rest)

    def undo(folded: jax.Array) -> jax.Array:
        rest = folded.shape[3:]
        return jnp.swapaxes(folded.reshape(b, c, g, each * q, *rest), 1, 2).reshape(b, g, h, q, *rest)

    query = jnp.swapaxes(fold(queries.query * jnp.asarray(scale, queries.query.dtype)), 2, 3)
    logits = jnp.einsum("bcsk,bckn->bcsn", source.key[:, 0], query, preferred_element_type=jnp.float32)
    # Else XLA turns the product round, and on CPUs copies the keys, transposed, instead of a few logits.
    logits = jnp.swapaxes(jax.lax.optimization_barrier(logits), 2, 3)
    position = fold(jnp.broadcast_to(queries.position[:, :, None], (b, g, h, q)))
    distance = position[..., None] - source.position[:, :, None]
    seen = distance >= 0 if window is None else (distance >= 0) & (distance < window)
    maximum = jnp.max(logits, axis=-1, keepdims=True, where=seen, initial=-1e30)
    weights = jnp.where(seen, jnp.exp(logits - maximum), 0.0)
    values = source.value[:, 0]
    numerator = jnp.einsum("bcns,bcsk->bcnk", weights.astype(values.dtype), values, preferred_element_type=jnp.float32)
    return Partial(undo(numerator), undo(maximum[..., 0]), undo(jnp.sum(weights, axis=-1)))


few_queries = Backend(_forward, xla.backward)
"""Equals ``xla``. With 1 to 16 queries a key-value head and some hundred keys, it takes half the time on CPUs."""
