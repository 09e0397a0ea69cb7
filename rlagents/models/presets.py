"""Decoders by their hub name, for planning and ahead-of-time compilation where no checkpoint is at hand.

Sizes are those of the published ``config.json`` files. Weights are bfloat16, as published.
"""

import difflib
from typing import Any

import jax.numpy as jnp

from rlagents.models.config import DecoderConfig, Llama3Scaling

_BFLOAT16: dict[str, Any] = {"param_dtype": jnp.bfloat16, "compute_dtype": jnp.bfloat16}

_QWEN2_5: dict[str, Any] = {
    "head_dim": 128,
    "qkv_bias": True,
    "rope_theta": 1_000_000.0,
    **_BFLOAT16,
}
_QWEN2_5_1_5B = DecoderConfig(
    vocab_size=151_936,
    embed_dim=1536,
    mlp_dim=8960,
    num_layers=28,
    num_heads=12,
    num_kv_heads=2,
    tie_embeddings=True,
    max_positions=131_072,
    **_QWEN2_5,
)
_QWEN2_5_3B = DecoderConfig(
    vocab_size=151_936,
    embed_dim=2048,
    mlp_dim=11_008,
    num_layers=36,
    num_heads=16,
    num_kv_heads=2,
    tie_embeddings=True,
    max_positions=32_768,
    **_QWEN2_5,
)
_QWEN2_5_7B = DecoderConfig(
    vocab_size=152_064,
    embed_dim=3584,
    mlp_dim=18_944,
    num_layers=28,
    num_heads=28,
    num_kv_heads=4,
    tie_embeddings=False,
    max_positions=131_072,
    **_QWEN2_5,
)
_QWEN3_4B = DecoderConfig(
    vocab_size=151_936,
    embed_dim=2560,
    mlp_dim=9728,
    num_layers=36,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    qk_norm=True,
    tie_embeddings=True,
    rope_theta=1_000_000.0,
    max_positions=40_960,
    **_BFLOAT16,
)
_LLAMA3: dict[str, Any] = {
    "vocab_size": 128_256,
    "num_kv_heads": 8,
    "head_dim": 128,
    "rms_epsilon": 1e-5,
    "rope_theta": 500_000.0,
    "max_positions": 131_072,
    **_BFLOAT16,
}
_LLAMA3_1_8B = DecoderConfig(
    embed_dim=4096,
    mlp_dim=14_336,
    num_layers=32,
    num_heads=32,
    tie_embeddings=False,
    rope_scaling=Llama3Scaling(8.0, 1.0, 4.0, 8192),
    **_LLAMA3,
)
_LLAMA3_2_3B = DecoderConfig(
    embed_dim=3072,
    mlp_dim=8192,
    num_layers=28,
    num_heads=24,
    tie_embeddings=True,
    rope_scaling=Llama3Scaling(32.0, 1.0, 4.0, 8192),
    **_LLAMA3,
)

PRESETS = {
    "Qwen/Qwen2.5-1.5B": _QWEN2_5_1_5B,
    "Qwen/Qwen2.5-1.5B-Instruct": _QWEN2_5_1_5B.replace(max_positions=32_768),
    "Qwen/Qwen2.5-3B": _QWEN2_5_3B,
    "Qwen/Qwen2.5-3B-Instruct": _QWEN2_5_3B,
    "Qwen/Qwen2.5-7B": _QWEN2_5_7B,
    "Qwen/Qwen2.5-7B-Instruct": _QWEN2_5_7B.replace(max_positions=32_768),
    "Qwen/Qwen3-4B": _QWEN3_4B,
    "Qwen/Qwen3-4B-Base": _QWEN3_4B.replace(max_positions=32_768),
    "meta-llama/Llama-3.1-8B": _LLAMA3_1_8B,
    "meta-llama/Llama-3.1-8B-Instruct": _LLAMA3_1_8B,
    "meta-llama/Llama-3.2-3B": _LLAMA3_2_3B,
    "meta-llama/Llama-3.2-3B-Instruct": _LLAMA3_2_3B,
}


def preset(name: str) -> DecoderConfig:
    """The decoder published under a hub name. Raises KeyError naming the nearest known names otherwise."""
    if name not in PRESETS:
        lower = {known.lower(): known for known in PRESETS}
        near = [lower[match] for match in difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.3)]
        raise KeyError(f"no preset {name!r}; the nearest are {', '.join(near or PRESETS)}.")
    return PRESETS[name]
