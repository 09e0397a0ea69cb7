"""Taking the prompts of one packed micro-batch, cut to its length, and putting back what was computed for them.

``rows [d n]`` names ``n`` prompts of each of the ``d`` parts that the mesh splits a batch's prompts into, counted
within the part. Every device takes from, and puts back into, what it holds: no token moves.
"""

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Int

from rlagents import sharding
from rlagents.types import Sequences

T = TypeVar("T")


def take_sequences(
    sequences: Sequences, rows: Int[Array, "d n"], prefix_tokens: int, member_tokens: int, mesh: Mesh
) -> Sequences:
    """Return prompts ``rows`` with prefixes cut to ``prefix_tokens`` and members to ``member_tokens``."""
    taken = _take(sequences, rows, mesh)
    return dataclasses.replace(
        taken,
        prefix=taken.prefix[:, :prefix_tokens],
        prefix_length=jnp.minimum(taken.prefix_length, prefix_tokens),
        tokens=taken.tokens[:, :, :member_tokens],
        length=jnp.minimum(taken.length, member_tokens),
    )


def take_tokens(tree: T, rows: Int[Array, "d n"], member_tokens: int, mesh: Mesh) -> T:
    """Return prompts ``rows`` of leaves ``[p g]`` and ``[p g t]``, the latter cut to ``member_tokens``."""
    return jax.tree.map(lambda x: x[:, :, :member_tokens] if x.ndim == 3 else x, _take(tree, rows, mesh))


def put_tokens(whole: T, rows: Int[Array, "d n"], taken: T, mesh: Mesh) -> T:
    """Return ``whole``, leaves ``[p g t]``, with ``taken`` in the places that ``take_tokens`` took it from."""

    def put(whole: Any, rows: Array, taken: Any) -> Any:
        return jax.tree.map(lambda x, new: x.at[rows[0], :, : new.shape[2]].set(new), whole, taken)

    split = sharding.prompt_sharding(mesh).spec
    return jax.shard_map(put, mesh=mesh, in_specs=split, out_specs=split)(whole, rows, taken)


def _take(tree: T, rows: Int[Array, "d n"], mesh: Mesh) -> T:
    def take(tree: Any, rows: Array) -> Any:
        return jax.tree.map(lambda x: x[rows[0]], tree)

    split = sharding.prompt_sharding(mesh).spec
    return jax.shard_map(take, mesh=mesh, in_specs=split, out_specs=split)(tree, rows)
