"""Attention by blocks of queries, so that only one block's logits exist at a time."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from rlagents.models.attention import Backend, Outcome, Partial, Queries, Source, Window
from rlagents.models.causal import ATTENTION_PARTS, in_causal_parts
from rlagents.models.chunks import join, split
from rlagents.models.dense import dense


def blockwise(block_logits: int, inner: Backend = dense, *, least_positions: int = 8) -> Backend:
    """Attention that hands a few positions of every member at a time to ``inner``.

    As many as give about ``block_logits`` logits ``[b g h block s]``, in both directions, but ``least_positions`` at
    least: fewer make the products of a long source too thin. The results are those of ``inner``, which is used directly
    where there is a single block (a decode step, say).
    """

    def block_positions(queries: Queries, source: Source) -> int:
        b, g, h, length, _ = queries.query.shape
        most = max(least_positions, block_logits // max(1, b * g * h * source.key.shape[3]))
        # Blocks of one size, so that the last holds little padding.
        return -(-length // max(1, -(-length // most)))

    def forward(scale: float, queries: Queries, source: Source, window: Window) -> Partial:
        return _forward(block_positions(queries, source), inner, scale, queries, source, window)

    def backward(
        scale: float, queries: Queries, source: Source, window: Window, outcome: Outcome
    ) -> tuple[Array, Array, Array]:
        return _backward(block_positions(queries, source), inner, scale, queries, source, window, outcome)

    return Backend(forward, backward)


def _forward(block: int, inner: Backend, scale: float, queries: Queries, source: Source, window: Window) -> Partial:
    length = queries.query.shape[3]
    if length <= block:
        return inner.forward(scale, queries, source, window)
    partials = jax.lax.map(lambda part: inner.forward(scale, part, source, window), _split_queries(queries, block))
    return Partial(*(join(x, length, 3) for x in partials))


def _backward(
    block: int, inner: Backend, scale: float, queries: Queries, source: Source, window: Window, outcome: Outcome
) -> tuple[Array, Array, Array]:
    if queries.query.shape[3] <= block:
        return inner.backward(scale, queries, source, window, outcome)

    def one(sums: tuple[Array, Array], part: tuple[Queries, Outcome]) -> tuple[tuple[Array, Array], Array]:
        d_query, d_key, d_value = inner.backward(scale, part[0], source, window, part[1])
        return (sums[0] + d_key, sums[1] + d_value), d_query

    nothing = (jnp.zeros_like(source.key, jnp.float32), jnp.zeros_like(source.value, jnp.float32))
    parts = (_split_queries(queries, block), Outcome(*(split(x, block, 3) for x in outcome)))
    (d_key, d_value), d_query = jax.lax.scan(one, nothing, parts)
    d_query = join(d_query, queries.query.shape[3], 3)
    return d_query, d_key.astype(source.key.dtype), d_value.astype(source.value.dtype)


def _split_queries(queries: Queries, block: int) -> Queries:
    # A padding query, before all keys, sees none: its partial is empty and its gradient 0.
    return Queries(split(queries.query, block, 3), split(queries.position, block, 2, fill=-1))


ATTENTION_CHUNK_LOGITS = 2**20
"""4 MB of logits, which stay in cache while they are used several times."""

xla = in_causal_parts(ATTENTION_PARTS, blockwise(ATTENTION_CHUNK_LOGITS))
"""The backend that runs anywhere."""
