"""On a mesh of eight devices everything gives what it gives on one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from rlagents import sharding
from rlagents.models import KV, empty_kv, extend, init_params, logical_axes, logits, prefill, token_log_probs
from rlagents.models.huggingface import save_pretrained
from tests.models.tiny import GEMMA3, LLAMA, random_params, random_sequences, relative_error

# One key-value head for two shards: it is replicated.
CONFIG = LLAMA.replace(vocab_size=64, num_kv_heads=1)


@pytest.fixture(scope="module")
def mesh():
    return sharding.make_mesh(data=2, fsdp=2, tensor=2)


def param_shardings(config, mesh):
    shapes = jax.eval_shape(lambda: init_params(config, jax.random.key(0)))
    return sharding.tree_shardings(logical_axes(config), shapes, mesh)


def test_log_probs_and_gradients(mesh):
    config = CONFIG
    params, sequences = random_params(config), random_sequences(config, seed=1, p=4)

    def loss(params, sequences):
        log_prob, entropy = token_log_probs(config, params, sequences, 0.7, head_chunk_tokens=24)
        return jnp.sum(log_prob) + 0.3 * jnp.sum(entropy), (log_prob, entropy)

    step = jax.jit(jax.value_and_grad(loss, has_aux=True))
    expected = step(params, sequences)
    placed = jax.device_put(params, param_shardings(config, mesh)), sharding.shard_batch(sequences, mesh)
    assert relative_error(step(*placed), expected) < 1e-5


def test_head_chunks_keep_prompts_where_they_are(mesh):
    """No device ever holds the hidden states of all prompts: the scan over chunks does not run over prompts."""
    config = LLAMA.replace(vocab_size=64)
    sequences = random_sequences(config, seed=1, p=8, g=2, t=16)
    params = jax.device_put(random_params(config), sharding.replicated(mesh))

    def outputs(params, sequences):
        return token_log_probs(config, params, sequences, 1.0, head_chunk_tokens=64)

    compiled = jax.jit(outputs).lower(params, sharding.shard_batch(sequences, mesh)).compile()
    assert "all-gather" not in compiled.as_text()
    assert "all-to-all" not in compiled.as_text()


def test_prefill_and_extend(mesh):
    config = CONFIG
    params, sequences = random_params(config), random_sequences(config, seed=1, p=4, g=2)
    tokens, group = sequences.tokens.reshape(8, -1), jnp.repeat(jnp.arange(4), 2)
    counts, own_length = sequences.length.reshape(-1), jnp.zeros(8, jnp.int32)

    @jax.jit
    def run(params, prefix, prefix_length, own):
        kv = prefill(config, params, prefix, prefix_length)
        hidden, own = extend(config, params, tokens, counts, own, own_length, kv, prefix_length, group)
        return logits(config, params, hidden), own

    own = empty_kv(config, 8, 9)
    expected = run(params, sequences.prefix, sequences.prefix_length, own)
    rows = sharding.kv_sharding(mesh, config.num_kv_heads)
    prompts = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))
    placed = (
        jax.device_put(params, param_shardings(config, mesh)),
        *jax.device_put((sequences.prefix, sequences.prefix_length), prompts),
        jax.device_put(own, KV(rows, rows)),
    )
    out, new_own = run(*placed)
    assert relative_error((out, new_own), expected) < 1e-5


def test_initial_weights_are_made_where_they_live(mesh):
    config = CONFIG
    shardings = param_shardings(config, mesh)
    made = jax.jit(lambda key: init_params(config, key), out_shardings=shardings)(jax.random.key(0))
    assert jax.tree.map(lambda leaf: leaf.sharding, made) == shardings
    here = jax.jit(lambda key: init_params(config, key))(jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, made, here)


def test_sharded_weights_are_saved_whole(mesh, tmp_path):
    config = GEMMA3.replace(vocab_size=64)
    params = random_params(config)
    save_pretrained(tmp_path / "one", config, params)
    save_pretrained(tmp_path / "eight", config, jax.device_put(params, param_shardings(config, mesh)))
    name = "model.safetensors"
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "eight" / name).read_bytes()
