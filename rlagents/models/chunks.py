"""Tokens in the order that products like: on one axis, or cut into chunks and put together again."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rlagents import sharding
from rlagents.row_chunks import RowChunks


def one_row(x: Float[Array, "*batch d"]) -> Float[Array, "n d"]:
    """All tokens on one axis: with several, XLA transposes what a weight's gradient is a product of."""
    return x.reshape(-1, x.shape[-1])


def chunk_positions(batch: tuple[int, ...], length: int, chunk_tokens: int) -> int:
    """Positions of a chunk that holds ``chunk_tokens`` tokens of a device at most, but one position at least.

    A chunk takes the same positions of every row, so that a batch that is split over devices stays so: its first axis,
    inside ``sharding.activations_over``, where it divides. Chunks are as even as can be: a row a little longer than one
    is not padded to two.
    """
    rows = math.prod(batch) // sharding.shards_of(batch[0] if batch else 1)
    most = max(1, chunk_tokens // max(1, rows))
    return -(-length // max(1, -(-length // most)))


def split(x: Array, chunk: int, axis: int, fill: int = 0) -> Array:
    """Pad ``axis`` to a multiple of ``chunk`` with ``fill`` and move the chunks to the front."""
    axis %= x.ndim
    chunks = -(-x.shape[axis] // chunk)
    padding = [(0, 0)] * x.ndim
    padding[axis] = (0, chunks * chunk - x.shape[axis])
    padded = jnp.pad(x, padding, constant_values=fill)
    return jnp.moveaxis(padded.reshape(*x.shape[:axis], chunks, chunk, *x.shape[axis + 1 :]), axis, 0)


def join(x: Array, length: int, axis: int) -> Array:
    """Undo :func:`split`; ``axis`` counts as it did there."""
    axis %= x.ndim - 1
    x = jnp.moveaxis(x, 0, axis)
    x = x.reshape(*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :])
    return jax.lax.slice_in_dim(x, 0, length, axis=axis)


def by_chunks(function: Callable[..., Array], arguments: tuple[Any, ...], chunk_tokens: int | None) -> Array:
    """``function`` of token-wise arguments ``[*batch t d]``, about ``chunk_tokens`` tokens at a time; None is all.

    In the backward pass, too, only one chunk's intermediate results exist: they are computed again.
    """
    *batch, length, _ = arguments[0].shape
    chunk = length if chunk_tokens is None else chunk_positions(tuple(batch), length, chunk_tokens)
    if chunk >= length:
        return function(*arguments)
    again = jax.checkpoint(function, prevent_cse=False)
    pieces = jax.lax.map(lambda piece: again(*piece), tuple(split(x, chunk, -2) for x in arguments))
    return join(pieces, length, -2)


def by_rows(
    function: Callable[[Any, Any], Any], of_row: Any, of_prompt: Any, *, row_tokens: int, chunk_tokens: int | None
) -> Any:
    """``function(of_row, of_prompt)`` of leaves ``[b g ..]`` and ``[b ..]``, about ``chunk_tokens`` tokens at a time.

    A row has ``row_tokens`` tokens; a chunk has whole rows. Results have leaves ``[b g ..]``. None is all at once.
    """
    prompts, members = jax.tree.leaves(of_row)[0].shape[:2]
    chunks = RowChunks.of(prompts, members, row_tokens=row_tokens, chunk_tokens=chunk_tokens)

    def some_prompts(piece: tuple[Any, Any]) -> Any:
        of_row, of_prompt = piece
        if chunks.members == members:
            return function(of_row, of_prompt)
        cut = jax.tree.map(chunks.cut_members, of_row)
        return jax.tree.map(chunks.join_members, jax.lax.map(lambda rows: function(rows, of_prompt), cut))

    if chunks.prompts == prompts:
        return some_prompts((of_row, of_prompt))
    cut = jax.tree.map(chunks.cut_prompts, (of_row, of_prompt))
    return jax.tree.map(chunks.join_prompts, jax.lax.map(some_prompts, cut))
