"""Which values of a layer the backward pass finds saved: as many as memory allows, for the rest is computed again.

A layer's input and what attention gathered are always kept. ``SAVE_PRODUCTS`` also keeps every product with a weight,
after which only element-wise work is left to do again.
"""

import jax
import jax.numpy as jnp

from rlagents.models.attention import ATTENTION
from rlagents.models.config import DecoderConfig
from rlagents.models.layers import SAVE_ATTENTION, RematPolicy
from rlagents.sharding import row_shards

SAVE_PRODUCTS: RematPolicy = jax.checkpoint_policies.save_from_both_policies(
    jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    jax.checkpoint_policies.save_only_these_names(ATTENTION),
)
"""Keeps the outputs of all projections and of the MLP's three products too."""


def products_bytes(config: DecoderConfig, tokens: int) -> int:
    """What ``SAVE_PRODUCTS`` keeps of ``tokens`` tokens beside what ``SAVE_ATTENTION`` does, in all layers."""
    projections = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim + config.embed_dim
    # What leaves the MLP is only added, unless a norm follows.
    mlp = 2 * config.mlp_dim + config.embed_dim * config.post_norms
    return config.num_layers * tokens * (projections + mlp) * jnp.dtype(config.compute_dtype).itemsize


def remat_within(config: DecoderConfig, positions: int, *, gigabytes: float) -> RematPolicy:
    """Return the policy that computes the least again and keeps ``gigabytes`` (1e9 bytes) more on a device at most.

    ``positions`` are those of the batches that are differentiated at once, padding included; inside
    ``sharding.activations_over``, a device has its share of them. Where a layer's chunks cut a row, what comes after
    attention is computed again whatever the policy. The vocabulary does not matter: logits are never kept.
    """
    on_device = positions // row_shards()
    return SAVE_PRODUCTS if products_bytes(config, on_device) <= gigabytes * 1e9 else SAVE_ATTENTION
