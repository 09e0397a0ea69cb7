"""How much work a shape is, counted from the model's sizes: multiply-adds twice, recomputation never, prefixes once."""

from typing import NamedTuple

import numpy as np

from rlagents.models import DecoderConfig


class Work(NamedTuple):
    """What takes time whatever the program: each of the two at the machine's rate, and they may overlap."""

    flops: float
    bytes: float
    """Read from memory."""


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
) -> float:
    """Operations of a group-relative step, forward and backward, and forward passes of a reference or old policy.

    ``own`` are a member's tokens beyond the shared prefix, ``sampled`` those whose log-probability is wanted: only
    they need the head. A backward pass is twice a forward one.

    A member's last sampled token predicts nothing, but its pass through the layers is counted: our step makes it, as
    sequences are not cut. ``decode`` does not count it: sampling never makes it.
    """
    tokens = prompts * (prefix + group * own)
    pairs = prompts * (prefix * (prefix + 1) / 2 + group * (own * prefix + own * (own + 1) / 2))
    head = 2.0 * config.embed_dim * config.vocab_size * prompts * group * sampled
    forward = 2.0 * layer_parameters(config) * tokens + attention_flops(config, pairs) + head
    return forward * (3 + passes_without_gradient)


def decode(
    config: DecoderConfig,
    *,
    prompts: int,
    group: int,
    prefix: int,
    first: int,
    last: int,
    weight_bytes: int = 4,
) -> Work:
    """Work of sampling tokens ``first .. last`` (counted from 0, both included) of every member, a token a step.

    Token ``i`` is drawn from the one before it, which sees the shared prefix and ``i + 1`` tokens of its own: the
    prompt's last one and those sampled; so the last sampled token passes no layer. A step reads every matrix once, the
    KV of a prefix once for all its members, and the KV of their own tokens.
    """
    steps = last - first + 1
    rows = prompts * group
    own = sum(range(first + 1, last + 2))
    entries = layer_parameters(config) + config.embed_dim * config.vocab_size
    flops = 2.0 * entries * rows * steps + attention_flops(config, rows * (steps * prefix + own))
    kv_bytes = 2 * config.num_layers * config.num_kv_heads * config.head_dim * np.dtype(config.compute_dtype).itemsize
    return Work(flops, float(weight_bytes * entries * steps + kv_bytes * (prompts * prefix * steps + rows * own)))


def rollout(
    config: DecoderConfig, *, prompts: int, group: int, prefix: int, sampled: int, weight_bytes: int = 4
) -> Work:
    """Work of a whole rollout: each prefix through the layers once, then ``decode`` from token 0.

    The pass over the prefixes needs no head and reads the layers' matrices once, for all of them.
    """
    decoding = decode(
        config, prompts=prompts, group=group, prefix=prefix, first=0, last=sampled - 1, weight_bytes=weight_bytes
    )
    flops = 2.0 * layer_parameters(config) * prompts * prefix
    flops += attention_flops(config, prompts * prefix * (prefix + 1) / 2)
    read = weight_bytes * layer_parameters(config) if prefix else 0
    return Work(decoding.flops + flops, decoding.bytes + read)
