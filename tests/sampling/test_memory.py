"""What a decode step moves: the state is written in place, and a block needs no second copy of it."""

import jax
import jax.numpy as jnp
import pytest

from rlagents.sampling.attention import few_queries
from rlagents.sampling.decode import decode_block, nothing_sampled
from rlagents.sampling.rule import SamplingRule
from rlagents.sampling.state import Rows, Window, empty_state
from rlagents.sharding import kv_sharding, single_device_mesh
from tests.sampling.support import CONFIG, make_params

ROWS, GROUPS, TOKENS = 16, 4, 128
DEEP = CONFIG.replace(num_layers=8)


def compiled(decode_rows: int, window: Window):
    mesh = single_device_mesh()
    state = jax.eval_shape(
        lambda: empty_state(
            DEEP, mesh, num_groups=GROUPS, max_prefix_tokens=TOKENS, num_rows=ROWS, max_member_tokens=TOKENS
        )
    )
    column = jax.ShapeDtypeStruct((decode_rows,), jnp.int32)
    rows = Rows(column, column, column, jax.ShapeDtypeStruct((GROUPS,), jnp.int32))
    lowered = decode_block.lower(
        DEEP,
        jax.eval_shape(lambda: make_params(DEEP)),
        state,
        rows,
        column,
        column,
        jax.ShapeDtypeStruct((decode_rows, 5), jnp.uint32),
        jax.eval_shape(lambda: nothing_sampled(4, decode_rows)),
        column,
        jax.ShapeDtypeStruct((1,), jnp.int32),
        rule=SamplingRule(),
        steps=4,
        group_size=4,
        window=window,
        backend=few_queries,
        sharding=kv_sharding(mesh, DEEP.num_kv_heads),
    )
    own = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state.own))
    whole = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    return lowered.compile(), own, whole


@pytest.mark.parametrize(
    ("decode_rows", "window", "copies"),
    [
        (ROWS, Window(TOKENS, TOKENS), 0.0),
        (ROWS, Window(TOKENS, TOKENS // 4), 0.25),
        (ROWS // 4, Window(TOKENS, TOKENS), 0.25),
    ],
)
def test_only_what_is_decoded_is_copied(decode_rows, window, copies):
    program, own, whole = compiled(decode_rows, window)
    memory = program.memory_analysis()
    assert memory.alias_size_in_bytes >= whole, "the state's buffers are used again"
    assert memory.temp_size_in_bytes < (copies + 0.4) * own


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_keys_and_values_are_kept_in_the_dtype_of_serving(dtype):
    state = empty_state(
        CONFIG.replace(compute_dtype=dtype),
        single_device_mesh(),
        num_groups=1,
        max_prefix_tokens=1,
        num_rows=1,
        max_member_tokens=1,
    )
    assert {leaf.dtype for leaf in jax.tree.leaves((state.prefix, state.own))} == {jnp.dtype(dtype)}


def test_a_smaller_window_is_less_work():
    full, small = (
        compiled(ROWS, Window(TOKENS, tokens))[0].cost_analysis()["flops"] for tokens in (TOKENS, TOKENS // 4)
    )
    assert small < 0.8 * full
