"""Tiny decoders of every family, and their weights."""

import jax
import jax.numpy as jnp

from rlagents.models import DecoderConfig, Llama3Scaling, gelu_tanh, init_params

_SIZES = {
    "vocab_size": 61,
    "embed_dim": 24,
    "mlp_dim": 40,
    "num_layers": 3,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 8,
    "max_positions": 64,
}

LLAMA = DecoderConfig(**_SIZES, tie_embeddings=False, rope_scaling=Llama3Scaling(8.0, 1.0, 4.0, 16))
QWEN2 = DecoderConfig(**_SIZES, qkv_bias=True)
QWEN3 = DecoderConfig(**{**_SIZES, "num_kv_heads": 1}, qk_norm=True, tie_embeddings=False)
GEMMA3 = DecoderConfig(
    **{**_SIZES, "num_kv_heads": 4},
    qk_norm=True,
    post_norms=True,
    norm_offset=1.0,
    activation=gelu_tanh,
    embedding_scale=24**0.5,
    query_scale=16**-0.5,
    rope_theta=1_000_000.0,
    sliding_window=3,
    sliding_layers=(True, True, False),
    sliding_rope_theta=10_000.0,
)
CONFIGS = {"llama": LLAMA, "qwen2": QWEN2, "qwen3": QWEN3, "gemma3_text": GEMMA3}


def random_params(config: DecoderConfig, seed: int = 0):
    """Weights of which none is at its initial value: norms and biases, too, are random."""
    params = init_params(config, jax.random.key(seed))
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
    noisy = [leaf + 0.1 * jax.random.normal(key, leaf.shape, jnp.float32) for leaf, key in zip(leaves, keys)]
    return jax.tree.unflatten(structure, noisy)


def relative_error(a, b) -> float:
    """``max|a - b| / max|b|`` of the worst leaf."""

    def leaf(a, b):
        return float(jnp.max(jnp.abs(a - b)) / jnp.maximum(jnp.max(jnp.abs(b)), 1e-30))

    return max(jax.tree.leaves(jax.tree.map(leaf, a, b)))
