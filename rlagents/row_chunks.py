"""Some rows of a batch ``[p g ..]`` at a time: those of several prompts, or some members of one prompt."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from rlagents import sharding


class RowChunks(NamedTuple):
    """How a batch is cut; every chunk is as large as every other, and each device takes its share from what it holds.

    Inside ``sharding.activations_over``, prompts are split over devices, and so are those of each chunk.
    """

    shards: int
    prompts: int
    """Of a chunk, on all devices."""
    members: int
    """Of each of its prompts."""

    @classmethod
    def of(cls, prompts: int, members: int, *, row_tokens: int, chunk_tokens: int | None) -> "RowChunks":
        """Chunks of the most rows that have ``chunk_tokens`` tokens on a device, one row at least; None sets no bound.

        Numbers divide without remainder, so that nothing is padded.
        """
        shards = sharding.shards_of(prompts)
        if chunk_tokens is None:
            return cls(shards, prompts, members)
        rows = chunk_tokens // max(1, row_tokens)
        return cls(shards, shards * _divisor(prompts // shards, rows // members), _divisor(members, rows))

    def cut_prompts(self, x: Array) -> Array:
        """``[p ..] -> [chunks, prompts, ..]``."""
        by_shard = x.reshape(self.shards, -1, self.prompts // self.shards, *x.shape[1:])
        by_chunk = jnp.swapaxes(by_shard, 0, 1).reshape(-1, self.prompts, *x.shape[1:])
        return sharding.keep_rows_split(by_chunk, axis=1)

    def join_prompts(self, x: Array) -> Array:
        """Undo ``cut_prompts``."""
        by_chunk = x.reshape(-1, self.shards, self.prompts // self.shards, *x.shape[2:])
        return sharding.keep_rows_split(jnp.swapaxes(by_chunk, 0, 1).reshape(-1, *x.shape[2:]))

    def cut_members(self, x: Array) -> Array:
        """``[n g ..] -> [chunks, n, members, ..]``."""
        return cut_members(x, self.members)

    def join_members(self, x: Array) -> Array:
        """Undo ``cut_members``."""
        return join_members(x)


def cut_members(x: Array, members: int) -> Array:
    """``[n g ..] -> [g / members, n, members, ..]``; ``members`` divides ``g``."""
    return jnp.moveaxis(x.reshape(x.shape[0], -1, members, *x.shape[2:]), 1, 0)


def join_members(x: Array) -> Array:
    """Undo ``cut_members``."""
    return jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1, *x.shape[3:])


def _divisor(number: int, most: int) -> int:
    """The largest divisor of ``number`` that is ``most`` at most, and 1 at least."""
    return max(size for size in range(1, max(1, min(most, number)) + 1) if number % size == 0)
