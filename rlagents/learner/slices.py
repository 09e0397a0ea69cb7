"""Cutting batches along prompts and members, and adding up what the pieces give.

Pieces are taken with a stride (piece ``i`` of ``n`` holds prompts ``i, i + n, ...``): where prompts are split over
devices in contiguous blocks, every piece is then split the same way and no token moves between devices. A loss is a
sum over tokens, so which prompts share a piece does not matter.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array

from rlagents import row_chunks, sharding
from rlagents.types import Largest

T = TypeVar("T")


def num_prompts(tree: Any) -> int:
    """Return ``p``, the leading axis of every leaf. Raises ValueError if the leaves disagree."""
    sizes = sorted({leaf.shape[0] for leaf in jax.tree.leaves(tree)})
    if len(sizes) != 1:
        raise ValueError(f"every leaf of a batch has the same leading axis p, but found sizes {sizes}")
    return sizes[0]


def pieces(total: int, size: int, what: str) -> int:
    """Return ``total / size``. Raises ValueError where it is not whole: a ragged piece would be another shape."""
    if size < 1 or total % size:
        raise ValueError(f"{total} {what} cannot be cut into pieces of {size}; choose a size that divides {total}")
    return total // size


def update_batch(tree: T, index: Array, updates: int, mesh: Mesh) -> T:
    """Return slice ``index`` (traced) of a rollout batch: prompts ``index, index + updates, ...``."""
    pieces(num_prompts(tree), updates, "prompts of a rollout batch")
    strided = jax.tree.map(lambda x: x.reshape(-1, updates, *x.shape[1:]), tree)
    taken = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, index, axis=1, keepdims=False), strided)
    return sharding.constrain_prompts(taken, mesh)


def back_in_batch(tree: T, index: Array, updates: int, mesh: Mesh) -> T:
    """Undo ``update_batch``: leaves ``[p, ...]`` with slice ``index`` back in its places, and 0 elsewhere."""

    def place(x: Array) -> Array:
        strided = jnp.zeros((x.shape[0], updates, *x.shape[1:]), x.dtype)
        return jax.lax.dynamic_update_index_in_dim(strided, x, index, axis=1).reshape(-1, *x.shape[1:])

    return sharding.constrain_prompts(jax.tree.map(place, tree), mesh)


def by_prompts(tree: T, prompts: int, mesh: Mesh) -> T:
    """Cut every leaf ``[p, ...]`` into ``[p / prompts, prompts, ...]``, each piece split over the mesh.

    Raises ValueError if ``prompts`` does not divide ``p`` or the mesh does not divide ``prompts``.
    """
    count = pieces(num_prompts(tree), prompts, "prompts of an update batch")
    pieces(prompts, sharding.prompt_shards(mesh), "prompts of a micro-batch (split over data x fsdp)")
    cut = jax.tree.map(lambda x: x.reshape(prompts, count, *x.shape[1:]).swapaxes(0, 1), tree)
    return sharding.constrain_prompts(cut, mesh, axis=1)


def by_members(tree: T, members: int) -> T:
    """Cut every leaf ``[p, g, ...]`` into ``[g / members, p, members, ...]``.

    Raises ValueError if ``members`` does not divide ``g``.
    """

    def cut(x: Array) -> Array:
        pieces(x.shape[1], members, "members of a group")
        return row_chunks.cut_members(x, members)

    return jax.tree.map(cut, tree)


def join_prompts(tree: T) -> T:
    """Undo ``by_prompts``: ``[n, prompts, ...] -> [p, ...]``, every prompt back in its place."""
    return jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), tree)


def join_members(tree: T) -> T:
    """Undo ``by_members``: ``[n, p, members, ...] -> [p, g, ...]``."""
    return jax.tree.map(row_chunks.join_members, tree)


def add(total: T, term: T) -> T:
    """Return ``total + term``, each leaf in the dtype of the total; of :class:`rlagents.types.Largest`, the larger."""

    def sum_of(a: Any, b: Any) -> Any:
        return a + b if isinstance(a, Largest) else a + b.astype(a.dtype)

    return jax.tree.map(sum_of, total, term, is_leaf=lambda x: isinstance(x, Largest))


def zeros_like_sum(function: Callable[..., T], *arguments: Any) -> T:
    """Return a sum of no ``function(*arguments)`` yet: zeros of its shapes, at least in float32."""
    shapes = jax.eval_shape(function, *arguments)
    return jax.tree.map(lambda s: jnp.zeros(s.shape, jnp.promote_types(s.dtype, jnp.float32)), shapes)


def sum_over(function: Callable[[Any], T], cut: Any, place: Callable[[T], T] = lambda total: total) -> T:
    """Return the sum of ``function(piece)`` over the leading axis of ``cut``, one piece at a time, at least in float32.

    ``place`` constrains the running total to its sharding.
    """
    zero = zeros_like_sum(function, jax.tree.map(lambda x: x[0], cut))

    def step(total: T, piece: Any) -> tuple[T, None]:
        return place(add(total, function(piece))), None

    return jax.lax.scan(step, place(zero), cut)[0]
