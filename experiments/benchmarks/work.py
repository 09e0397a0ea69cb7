"""How much work a shape is, counted from the model's sizes: multiply-adds twice, recomputation never, prefixes once."""

from typing import NamedTuple

from rlagents.models import DecoderConfig


class Work(NamedTuple):
    """Of one phase."""

    flops: float
    bytes: float = 0.0
    """Read and written where memory, not arithmetic, is the limit."""


def layer_parameters(config: DecoderConfig) -> int:
    """Entries of all layers' matrices: each is one multiply-add a token."""
    heads = config.head_dim * (2 * config.num_heads + 2 * config.num_kv_heads)
    return config.num_layers * config.embed_dim * (heads + 3 * config.mlp_dim)


def attention_flops(config: DecoderConfig, pairs: float) -> float:
    """Forward, for so many (query, key) pairs that see each other: one product for logits and one for the average."""
    return 4.0 * config.num_layers * config.num_heads * config.head_dim * pairs


def train_step(
    config: DecoderConfig,
    *,
    prompts: int,
    group: int,
    prefix: int,
    own: int,
    sampled: int,
    passes_without_gradient: int,
) -> Work:
    """Forward and backward of a group-relative step, and forward passes of a reference or old policy.

    ``own`` are a member's tokens beyond the shared prefix, ``sampled`` those whose log-probability is wanted: only
    they need the head. A backward pass is twice a forward one.
    """
    tokens = prompts * (prefix + group * own)
    pairs = prompts * (prefix * (prefix + 1) / 2 + group * (own * prefix + own * (own + 1) / 2))
    head = 2.0 * config.embed_dim * config.vocab_size * prompts * group * sampled
    forward = 2.0 * layer_parameters(config) * tokens + attention_flops(config, pairs) + head
    return Work(forward * (3 + passes_without_gradient))


def decode_step(config: DecoderConfig, *, rows: int, groups: int, prefix: float, own: float) -> Work:
    """One token for each of ``rows``: weights once, each group's prefix KV once, each row's own KV once."""
    size = config.compute_dtype.itemsize
    parameters = layer_parameters(config) + config.embed_dim * config.vocab_size
    kv_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    flops = 2.0 * parameters * rows + attention_flops(config, rows * (prefix + own))
    return Work(flops, size * (parameters + kv_token * (groups * prefix + rows * own)))
