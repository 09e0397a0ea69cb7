"""One table decides where arrays live; what does not divide is replicated, or refused by name."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from rlagents.learner import create_state, make_optimizer, state_shardings
from rlagents.learner.state import _initial
from rlagents.sharding import (
    REPLICATED_IF_UNEVEN,
    RULES,
    activations_over,
    check_sizes,
    keep_rows_split,
    kv_sharding,
    make_mesh,
    partition_spec,
    prompt_sharding,
    shard_batch,
    single_device_mesh,
    tree_shardings,
)
from tests import toy_policy
from tests.effort import draws

MESH = make_mesh(fsdp=4, tensor=2)
SHAPES = [(1, 1, 1), (1, 4, 2), (2, 2, 2), (8, 1, 1), (1, 1, 8), (2, 1, 4)]


def test_axes_are_auto_and_sizes_are_checked():
    assert MESH.shape == {"data": 1, "fsdp": 4, "tensor": 2}
    assert set(MESH.axis_types) == {AxisType.Auto}
    assert single_device_mesh().size == 1
    with pytest.raises(ValueError, match="data=1 x fsdp=3 x tensor=2 takes 6 devices, but there are 8"):
        make_mesh(fsdp=3, tensor=2)
    with pytest.raises(ValueError, match="three positive sizes"):
        make_mesh(data=-2, fsdp=-4)


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(RULES)), st.integers(1, 48)),
        min_size=1,
        max_size=4,
        unique_by=lambda x: RULES[x[0]][-1:],
    ),
    st.sampled_from(SHAPES),
)
@settings(deadline=None, max_examples=draws(60))
def test_what_is_split_divides_and_what_does_not_is_named(axes, shape):
    mesh = make_mesh(data=shape[0], fsdp=shape[1], tensor=shape[2], devices=jax.devices()[: math.prod(shape)])
    names, sizes = zip(*axes)
    parts = {name: math.prod(mesh.shape[axis] for axis in RULES[name]) for name in names}
    uneven = [name for name, size in axes if size % parts[name]]
    refused = [name for name in uneven if name not in REPLICATED_IF_UNEVEN]
    if refused:
        with pytest.raises(ValueError, match=f"{refused[0]} cannot be split over {parts[refused[0]]} parts"):
            partition_spec(names, sizes, mesh)
        return
    sharding = NamedSharding(mesh, partition_spec(names, sizes, mesh))
    expected = tuple(size if name in uneven else size // parts[name] for name, size in axes)
    assert sharding.shard_shape(sizes) == expected


def test_query_heads_are_refused_and_kv_heads_replicated():
    """All problems of a config at once, before anything is allocated."""
    mesh = make_mesh(tensor=8)
    check_sizes({"heads": 16, "kv_heads": 2, "vocab": 151_937, "embed": 5, "mlp": 24}, mesh)
    with pytest.raises(
        ValueError, match=r"14 heads cannot be split over 8 parts \(mesh axes tensor\).*; 20 mlp cannot"
    ):
        check_sizes({"heads": 14, "kv_heads": 2, "mlp": 20}, mesh)
    assert kv_sharding(mesh, 2).spec == P(None, ("data", "fsdp"), None, None, None)
    assert kv_sharding(mesh, 8).shard_shape((3, 4, 8, 5, 6)) == (3, 4, 1, 5, 6)
    assert kv_sharding(MESH, 8).shard_shape((3, 4, 8, 5, 6)) == (3, 1, 4, 5, 6)


def test_bad_axes_are_named_with_their_parameter():
    with pytest.raises(ValueError, match=r"parameter \['a'\]: unknown logical axis 'embedding'; the rules know \["):
        tree_shardings({"a": ("embedding",)}, {"a": jnp.zeros(4)}, MESH)
    with pytest.raises(
        ValueError, match=r"parameter \['a'\]\['b'\]: 1 logical axes \('embed',\) for an array of shape \(4, 2\)"
    ):
        tree_shardings({"a": {"b": ("embed",)}}, {"a": {"b": jnp.zeros((4, 2))}}, MESH)


@pytest.mark.parametrize(
    ("optimizer", "mirrors"),
    [(optax.adamw(0.1), 6), (optax.chain(optax.trace(0.9), optax.scale(-1)), 3), (optax.sgd(0.1), 0)],
    ids=["adamw", "momentum", "sgd"],
)
def test_optimizer_state_follows_the_parameters(optimizer, mirrors):
    """Whatever the optimizer: moments are split like what they are moments of, counts are everywhere."""
    params = toy_policy.init_params()
    shardings = state_shardings(params, optimizer, (), toy_policy.AXES, MESH)
    state = create_state(params, optimizer, (), jax.random.key(0), shardings)
    assert shardings.params["embedding"].spec == P(None, "fsdp"), "11 tokens do not divide over tensor"
    assert shardings.params["mix"].spec == P("fsdp", None)
    found = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(state.optimizer_state):
        name = str(getattr(path[-1], "key", ""))
        expected = shardings.params[name] if name in params else NamedSharding(MESH, P())
        assert leaf.sharding.is_equivalent_to(expected, leaf.ndim)
        found += name in params
    assert found == mirrors


def test_the_state_is_created_where_it_lives():
    """The naive way makes accumulators eagerly: whole, on the first device, however the parameters are split."""
    params = {name: jnp.ones((512, 512)) for name in ("a", "b")}
    axes = {"a": ("mlp", "embed"), "b": ("embed", "heads")}
    optimizer = make_optimizer(optax.constant_schedule(0.1))
    shardings = state_shardings(params, optimizer, (), axes, MESH)
    whole = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    placed = jax.device_put(params, shardings.params)
    compiled = jax.jit(lambda p, k: _initial(p, optimizer, (), k), out_shardings=shardings)
    memory = compiled.lower(placed, jax.random.key(0)).compile().memory_analysis()
    assert memory.output_size_in_bytes <= 3 * whole / 8 + 1024, "parameters and two moments, an eighth of each"
    assert memory.temp_size_in_bytes <= whole / 8 + 1024
    state = create_state(placed, optimizer, (), jax.random.key(0), shardings)
    for leaf in jax.tree.leaves((state.params, state.optimizer_state)):
        assert leaf.ndim == 0 or all(shard.data.nbytes == leaf.nbytes // 8 for shard in leaf.addressable_shards)
    naive = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), placed)
    assert all(len(leaf.sharding.device_set) == 1 for leaf in jax.tree.leaves(naive))


def test_batches_split_along_prompts():
    batch = shard_batch(toy_policy.random_batch(0, p=8), MESH)
    for leaf in jax.tree.leaves(batch):
        assert leaf.sharding.shard_shape(leaf.shape) == (2, *leaf.shape[1:])
    np.testing.assert_array_equal(batch.sequences.tokens, toy_policy.random_batch(0, p=8).sequences.tokens)
    assert prompt_sharding(MESH, axis=1).shard_shape((3, 8, 5)) == (3, 2, 5)
    with pytest.raises(
        ValueError, match=r"6 prompts cannot be split over 4 parts .* multiple of 4 with invalid prompts"
    ):
        shard_batch(toy_policy.random_batch(0, p=6), MESH)
    with pytest.raises(ValueError, match=r"same leading axis p, but found sizes \[2, 3\]"):
        shard_batch({"a": np.zeros(2), "b": np.zeros(3)}, MESH)


def test_rows_stay_split_inside_a_mesh_only():
    table = jax.device_put(jnp.ones((16, 8)), NamedSharding(MESH, P(None, "fsdp")))
    tokens = jax.device_put(jnp.zeros((8, 3), jnp.int32), prompt_sharding(MESH))

    def embed(table, tokens):
        with activations_over(MESH):
            return keep_rows_split(table[tokens])

    assert jax.jit(embed)(table, tokens).sharding.shard_shape((8, 3, 8)) == (2, 3, 8)
    left_alone = jax.jit(lambda table, tokens: keep_rows_split(table[tokens]))(table, tokens)
    assert left_alone.sharding.shard_shape((8, 3, 8)) != (2, 3, 8), "XLA alone splits the embedding axis"
