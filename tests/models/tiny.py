"""Tiny decoders of every family, and their weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from rlagents.models import (
    DecoderConfig,
    Llama3Scaling,
    empty_kv,
    extend,
    gelu_tanh,
    init_params,
    logits,
)
from rlagents.types import Sequences

_SIZES = {
    "vocab_size": 61,
    "embed_dim": 24,
    "mlp_dim": 40,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 8,
    "max_positions": 64,
}

LLAMA = DecoderConfig(**_SIZES, tie_embeddings=False, rope_scaling=Llama3Scaling(8.0, 1.0, 4.0, 16))
QWEN2 = DecoderConfig(**_SIZES, qkv_bias=True)
QWEN3 = DecoderConfig(**{**_SIZES, "num_kv_heads": 1}, qk_norm=True, tie_embeddings=False)
GEMMA3 = DecoderConfig(
    **_SIZES,
    qk_norm=True,
    post_norms=True,
    norm_offset=1.0,
    activation=gelu_tanh,
    embedding_scale=24**0.5,
    query_scale=16**-0.5,
    rope_theta=1_000_000.0,
    sliding_window=3,
    sliding_layers=(True, False),
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


def random_sequences(config: DecoderConfig, *, seed: int, p: int = 2, g: int = 3, l: int = 7, t: int = 6) -> Sequences:  # noqa: E741
    """Ragged groups: one prefix full, one member full, one of a single token."""
    rng = np.random.default_rng(seed)
    prefix_length = rng.integers(0, l + 1, p)
    length = rng.integers(1, t + 1, (p, g))
    prefix_length[0], length[0, 0], length[-1, -1] = l, t, 1
    return Sequences(
        prefix=jnp.asarray(rng.integers(0, config.vocab_size, (p, l)), jnp.int32),
        prefix_length=jnp.asarray(prefix_length, jnp.int32),
        tokens=jnp.asarray(rng.integers(0, config.vocab_size, (p, g, t)), jnp.int32),
        length=jnp.asarray(length, jnp.int32),
    )


@functools.partial(jax.jit, static_argnums=0)
def full_logits(config: DecoderConfig, params, tokens):
    """Logits ``[n, t, v]`` of whole sequences ``[n, t]`` in a single call of ``extend``."""
    rows, length = tokens.shape
    nothing = jnp.zeros(rows, jnp.int32)
    hidden, _ = extend(
        config,
        params,
        jnp.asarray(tokens),
        jnp.full(rows, length),
        empty_kv(config, rows, 1),
        nothing,
        empty_kv(config, 1, 1),
        jnp.zeros(1, jnp.int32),
        nothing,
    )
    return logits(config, params, hidden)


def relative_error(a, b) -> float:
    """``max|a - b| / max|b|`` of the worst leaf."""

    def leaf(a, b):
        return float(jnp.max(jnp.abs(a - b)) / jnp.maximum(jnp.max(jnp.abs(b)), 1e-30))

    return max(jax.tree.leaves(jax.tree.map(leaf, a, b)))


def array_sizes(jaxpr) -> list[int]:
    """Sizes of all arrays that a jaxpr computes, its inner jaxprs' included."""
    sizes = []
    for equation in jaxpr.eqns:
        sizes += [v.aval.size for v in equation.outvars]
        for inner in jaxprs_in_params(equation.params):
            sizes += array_sizes(inner)
    return sizes
