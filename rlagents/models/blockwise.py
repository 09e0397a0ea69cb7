"""Attention by blocks of queries, so that only one block's logits exist at a time."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array

from rlagents.models.attention import Backend, Outcome, Partial, Queries, Source, Window
from rlagents.models.dense import dense


def blockwise(block_queries: int, inner: Backend = dense) -> Backend:
    """Attention that hands ``block_queries`` positions of every member at a time to ``inner``.

    Logits take ``[b g h block_queries s]``, in both directions. The results are those of ``inner``, which is used
    directly where there is a single block (a decode step, say).
    """
    return Backend(
        functools.partial(_forward, block_queries, inner), functools.partial(_backward, block_queries, inner)
    )


def _forward(block: int, inner: Backend, scale: float, queries: Queries, source: Source, window: Window) -> Partial:
    length = queries.query.shape[3]
    if length <= block:
        return inner.forward(scale, queries, source, window)
    partials = jax.lax.map(lambda part: inner.forward(scale, part, source, window), _split_queries(queries, block))
    return Partial(*(_join(x, length) for x in partials))


def _backward(
    block: int, inner: Backend, scale: float, queries: Queries, source: Source, window: Window, outcome: Outcome
) -> tuple[Array, Array, Array]:
    if queries.query.shape[3] <= block:
        return inner.backward(scale, queries, source, window, outcome)

    def one(sums: tuple[Array, Array], part: tuple[Queries, Outcome]) -> tuple[tuple[Array, Array], Array]:
        d_query, d_key, d_value = inner.backward(scale, part[0], source, window, part[1])
        return (sums[0] + d_key, sums[1] + d_value), d_query

    nothing = (jnp.zeros_like(source.key, jnp.float32), jnp.zeros_like(source.value, jnp.float32))
    parts = (_split_queries(queries, block), Outcome(*(_split(x, block, 3, 0) for x in outcome)))
    (d_key, d_value), d_query = jax.lax.scan(one, nothing, parts)
    d_query = _join(d_query, queries.query.shape[3])
    return d_query, d_key.astype(source.key.dtype), d_value.astype(source.value.dtype)


def _split_queries(queries: Queries, block: int) -> Queries:
    # A padding query, before all keys, sees none: its partial is empty and its gradient 0.
    return Queries(_split(queries.query, block, 3, 0), _split(queries.position, block, 2, -1))


def _split(x: Array, block: int, axis: int, fill: int) -> Array:
    """Pad ``axis`` to a multiple of ``block`` and move the blocks to the front."""
    blocks = -(-x.shape[axis] // block)
    padding = [(0, 0)] * x.ndim
    padding[axis] = (0, blocks * block - x.shape[axis])
    x = jnp.pad(x, padding, constant_values=fill)
    return jnp.moveaxis(x.reshape(*x.shape[:axis], blocks, block, *x.shape[axis + 1 :]), axis, 0)


def _join(x: Array, length: int) -> Array:
    """Undo ``_split`` of axis 3."""
    x = jnp.moveaxis(x, 0, 3)
    return x.reshape(*x.shape[:3], -1, *x.shape[5:])[:, :, :, :length]


xla = blockwise(128)
"""The backend that runs anywhere."""
