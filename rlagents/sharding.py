"""Where arrays live: one mesh, one table from logical axis names to mesh axes, everything else derived.

The mesh has three axes. ``data`` and ``fsdp`` both split the prompts of a batch; ``fsdp`` also splits parameters along
their embedding axis, ``tensor`` along heads, MLP and vocabulary. Axis types are Auto: XLA places the communication.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

MESH_AXES = ("data", "fsdp", "tensor")

RULES: Mapping[str, tuple[str, ...]] = {
    "prompts": ("data", "fsdp"),
    "layers": (),
    "vocab": ("tensor",),
    "embed": ("fsdp",),
    "heads": ("tensor",),
    "kv_heads": ("tensor",),
    "head_dim": (),
    "mlp": ("tensor",),
}
"""Logical axis name -> the mesh axes that split it."""

REPLICATED_IF_UNEVEN = frozenset({"kv_heads", "vocab"})
"""Logical axes that are held whole where the mesh does not divide them; all others are refused."""

Axes = tuple[str | None, ...]
"""A logical name for each axis of an array; None for an axis that is never split."""


def make_mesh(*, data: int = 1, fsdp: int = 1, tensor: int = 1, devices: Sequence[Any] | None = None) -> Mesh:
    """Make the mesh ``(data, fsdp, tensor)`` over ``devices`` (all devices of all processes by default).

    Raises ValueError unless ``data * fsdp * tensor`` is the number of devices.
    """
    devices = jax.devices() if devices is None else list(devices)
    shape = (data, fsdp, tensor)
    if min(shape) < 1 or math.prod(shape) != len(devices):
        raise ValueError(
            f"the mesh data={data} x fsdp={fsdp} x tensor={tensor} takes {math.prod(shape)} devices, but there are "
            f"{len(devices)}; choose three positive sizes whose product is {len(devices)}"
        )
    return jax.make_mesh(shape, MESH_AXES, axis_types=(AxisType.Auto,) * len(MESH_AXES), devices=devices)


def single_device_mesh() -> Mesh:
    """Return the 1 x 1 x 1 mesh on the first local device: the same programs, nothing split."""
    return make_mesh(devices=jax.local_devices()[:1])


def partition_spec(axes: Axes, shape: Sequence[int], mesh: Mesh) -> PartitionSpec:
    """Derive the partition of one array from its logical axes.

    Raises ValueError for an unknown logical name, a wrong number of names, or a size that the mesh does not divide
    (names in ``REPLICATED_IF_UNEVEN`` are left whole instead).
    """
    if len(axes) != len(shape):
        raise ValueError(f"{len(axes)} logical axes {axes} for an array of shape {tuple(shape)}; give one name an axis")
    return PartitionSpec(*(_mesh_axes(name, size, mesh) for name, size in zip(axes, shape)))


def _mesh_axes(name: str | None, size: int, mesh: Mesh) -> tuple[str, ...] | None:
    if name is None:
        return None
    if name not in RULES:
        raise ValueError(f"unknown logical axis {name!r}; the rules know {sorted(RULES)}")
    parts = math.prod(mesh.shape[axis] for axis in RULES[name])
    if size % parts == 0:
        return RULES[name] or None
    if name in REPLICATED_IF_UNEVEN:
        return None
    raise ValueError(
        f"{size} {name} cannot be split over {parts} parts (mesh axes {' x '.join(RULES[name])}); "
        f"choose a mesh whose {' x '.join(RULES[name])} divides {size}"
    )


def check_sizes(sizes: Mapping[str, int], mesh: Mesh) -> None:
    """Refuse logical sizes that ``mesh`` does not divide, all at once and before anything is allocated.

    ``sizes`` maps logical names to sizes, e.g. ``{"heads": 14, "kv_heads": 2, "embed": 896, "mlp": 4864}``.
    Raises ValueError with one line a problem.
    """
    problems = []
    for name, size in sizes.items():
        try:
            _mesh_axes(name, size, mesh)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("; ".join(problems))


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding of an array that every device holds whole."""
    return NamedSharding(mesh, PartitionSpec())


def tree_shardings(logical_axes: Any, shapes: Any, mesh: Mesh) -> Any:
    """Derive a tree of shardings from trees of logical axes and of anything with a shape.

    ``logical_axes`` has the structure of ``shapes`` with a tuple of names at each leaf. Raises ValueError naming the
    leaf that does not fit.
    """

    def leaf(path: Any, axes: Axes, array: Any) -> NamedSharding:
        try:
            return NamedSharding(mesh, partition_spec(axes, array.shape, mesh))
        except ValueError as error:
            raise ValueError(f"parameter {jax.tree_util.keystr(path)}: {error}") from None

    return jax.tree_util.tree_map_with_path(leaf, logical_axes, shapes, is_leaf=lambda node: isinstance(node, tuple))


def like_params(tree: Any, params: Any, param_shardings: Any, mesh: Mesh) -> Any:
    """Shard every subtree of ``tree`` that mirrors ``params`` (same structure and shapes) as the parameters are.

    All else (step counts, scalars, keys) is replicated. Optimizer states mirror the parameters leaf by leaf, whatever
    the optimizer; this needs to know none of them.
    """
    structure = jax.tree.structure(params)
    shapes = [leaf.shape for leaf in jax.tree.leaves(params)]

    def mirrors(node: Any) -> bool:
        return jax.tree.structure(node) == structure and [leaf.shape for leaf in jax.tree.leaves(node)] == shapes

    return jax.tree.map(lambda node: param_shardings if mirrors(node) else replicated(mesh), tree, is_leaf=mirrors)


def prompt_sharding(mesh: Mesh, axis: int = 0) -> NamedSharding:
    """Return the sharding of an array whose ``axis`` counts prompts: split over ``data x fsdp``."""
    return NamedSharding(mesh, PartitionSpec(*(None,) * axis, RULES["prompts"]))


def prompt_shards(mesh: Mesh | AbstractMesh) -> int:
    """Return into how many parts the prompts of a batch are split."""
    return math.prod(mesh.shape[axis] for axis in RULES["prompts"])


def constrain_prompts(tree: Any, mesh: Mesh, axis: int = 0) -> Any:
    """Inside jit: keep every leaf of ``tree`` split along its prompt ``axis``."""
    return jax.lax.with_sharding_constraint(tree, prompt_sharding(mesh, axis))


def activations_over(mesh: Mesh) -> AbstractContextManager[Any]:
    """While a model is traced inside this context, ``keep_rows_split`` splits its activations over ``mesh``."""
    return jax.sharding.use_abstract_mesh(mesh.abstract_mesh)


def keep_rows_split(activations: Any, axis: int = 0) -> Any:
    """Keep ``axis`` (prompts, groups, rows) of activations split over ``data x fsdp``; outside a mesh, nothing.

    Left to itself, XLA splits what leaves the embedding as the embedding is split: along the embedding axis. Every
    device then works on all rows, and what crosses devices are activations. With rows split, each layer's weights are
    gathered when it runs and no activation moves.
    """
    if jax.sharding.get_abstract_mesh().empty:
        return activations
    return jax.lax.with_sharding_constraint(activations, PartitionSpec(*[None] * axis, RULES["prompts"]))


def row_shards() -> int:
    """Into how many parts ``keep_rows_split`` splits rows, here; 1 outside a mesh."""
    mesh = jax.sharding.get_abstract_mesh()
    return 1 if mesh.empty else prompt_shards(mesh)


def shards_of(rows: int) -> int:
    """``row_shards`` where so many rows divide over them, else 1."""
    shards = row_shards()
    return shards if rows % shards == 0 else 1


def shard_batch(batch: Any, mesh: Mesh) -> Any:
    """Place a host batch (leaves ``[p, ...]``, this process's prompts) on the devices, split along ``p``.

    Raises ValueError if the prompts do not divide the local share of ``data x fsdp``: a batch is padded with invalid
    prompts by the caller, never silently.
    """
    local_shards = max(1, prompt_shards(mesh) // jax.process_count())
    sizes = sorted({np.shape(leaf)[0] for leaf in jax.tree.leaves(batch)})
    if len(sizes) != 1:
        raise ValueError(f"every leaf of a batch has the same leading axis p, but found sizes {sizes}")
    if sizes[0] % local_shards:
        raise ValueError(
            f"{sizes[0]} prompts cannot be split over {local_shards} parts (this process's share of data x fsdp); pad "
            f"the batch to a multiple of {local_shards} with invalid prompts"
        )
    sharding = prompt_sharding(mesh)
    return jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(sharding, np.asarray(leaf)), batch)


def kv_sharding(mesh: Mesh, num_kv_heads: int) -> NamedSharding:
    """Return the sharding of keys or values ``[layers, n, kv_heads, length, head_dim]`` of ``n`` rows or groups."""
    heads = _mesh_axes("kv_heads", num_kv_heads, mesh)
    return NamedSharding(mesh, PartitionSpec(None, RULES["prompts"], heads, None, None))
