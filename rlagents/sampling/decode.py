"""The three jitted functions of the sampler: prefill prefixes, extend rows by given tokens, decode a block of tokens.

Shapes follow from the sampler's sizes and from a few buckets of lengths, so that each compiles a few times and never
again. The state is donated and written in place.
"""

import dataclasses
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, UInt

from rlagents.models import decoder
from rlagents.models.attention import Backend
from rlagents.models.config import DecoderConfig
from rlagents.models.decoder import KV
from rlagents.sampling.keys import row_keys, token_keys
from rlagents.sampling.rule import SamplingRule, draw
from rlagents.sampling.state import Rows, SamplerState, Window, first_tokens, put_rows, take_rows
from rlagents.types import Params

T = TypeVar("T")


class Sampled(NamedTuple):
    """What a block sampled: the first ``count[r]`` entries of column ``r``; the rest means nothing."""

    token: Int[Array, "steps d"]
    log_prob: Float[Array, "steps d"]
    count: Int[Array, " d"]
    stopped: Bool[Array, " d"]
    """Whether the last token is a stop token."""


def nothing_sampled(steps: int, width: int) -> Sampled:
    """Of a block that has taken no step."""
    return Sampled(
        jnp.zeros((steps, width), jnp.int32),
        jnp.zeros((steps, width), jnp.float32),
        jnp.zeros(width, jnp.int32),
        jnp.zeros(width, bool),
    )


@partial(jax.jit, static_argnames=("config", "sharding"), donate_argnames=("state",))
def prefill_prefixes(
    config: DecoderConfig,
    params: Params,
    state: SamplerState,
    slots: Int[Array, " k"],
    tokens: Int[Array, "k b"],
    lengths: Int[Array, " k"],
    *,
    sharding: NamedSharding,
) -> SamplerState:
    """Write the KV of ``k`` prefixes into their slots; ``b`` is a bucket, a slot past the end is padding."""
    new = decoder.prefill(config, params, tokens, lengths)
    bucket = tokens.shape[1]

    def write(old: Array, new: Array) -> Array:
        return old.at[:, slots, :, :bucket].set(new.astype(old.dtype), mode="drop")

    return _pin(dataclasses.replace(state, prefix=jax.tree.map(write, state.prefix, new)), sharding)


@partial(jax.jit, static_argnames=("config", "group_size", "window", "sharding"), donate_argnames=("state",))
def extend_rows(
    config: DecoderConfig,
    params: Params,
    state: SamplerState,
    rows: Rows,
    tokens: Int[Array, "d t"],
    counts: Int[Array, " d"],
    *,
    group_size: int,
    window: Window,
    sharding: NamedSharding,
) -> SamplerState:
    """Feed ``counts[r]`` given tokens to row ``r``: their KV lands at ``length .. length + counts``, in the window."""
    own = take_rows(state.own, rows.index, window.own_tokens)
    _, own = decoder.extend(
        config,
        params,
        tokens,
        counts,
        own,
        rows.length,
        first_tokens(state.prefix, window.prefix_tokens),
        rows.prefix_length,
        rows.group,
        max_rows_per_prefix=min(group_size, rows.index.shape[0]),
    )
    return _pin(dataclasses.replace(state, own=put_rows(state.own, rows.index, own)), sharding)


class _Carry(NamedTuple):
    step: Int[Array, ""]
    active: Bool[Array, " d"]
    last_token: Int[Array, " d"]
    own: KV
    sampled: Sampled


@partial(
    jax.jit,
    static_argnames=("config", "rule", "steps", "group_size", "window", "backend", "sharding"),
    donate_argnames=("state",),
)
def decode_block(
    config: DecoderConfig,
    params: Params,
    state: SamplerState,
    rows: Rows,
    last_token: Int[Array, " d"],
    remaining: Int[Array, " d"],
    material: UInt[Array, "d 5"],
    before: Sampled,
    carried: Int[Array, " d"],
    stop_ids: Int[Array, " e"],
    *,
    rule: SamplingRule,
    steps: int,
    group_size: int,
    window: Window,
    backend: Backend,
    sharding: NamedSharding,
) -> tuple[SamplerState, Sampled]:
    """Sample up to ``steps`` tokens a row, fewer where all rows have stopped.

    A row stops after a token of ``stop_ids`` or after ``remaining`` tokens; a row with ``remaining`` 0 does nothing.
    Each step feeds ``last_token`` and draws the one after it, which stays un-fed.

    A carried row goes on from where ``before`` ended for it: ``rows.length``, ``last_token`` and ``remaining`` are as
    the host knows them, without that block; whether it stopped there, only the device knows.

    Args:
      config: of the decoder.
      params: its weights.
      state: taken over.
      rows: which rows.
      last_token: their un-fed tokens.
      remaining: how many tokens each may sample.
      material: domain, run, step, stream, member of each row (:mod:`rlagents.sampling.keys`).
      before: of the block before, which the host need not have read.
      carried: the place of each row in that block; ``d`` for a row that does not go on from it.
      stop_ids: token ids that end a turn.
      rule: how to draw.
      steps: block length.
      group_size: upper bound on rows that share a prefix.
      window: holds the prefixes of all rows that do something, and their own tokens up to the block's end.
      backend: computes attention.
      sharding: of KV.
    """
    width = rows.index.shape[0]
    goes_on, place = carried < width, jnp.minimum(carried, width - 1)
    count_before = jnp.where(goes_on, before.count[place], 0)
    last_token = jnp.where(count_before > 0, before.token[count_before - 1, place], last_token)
    remaining = jnp.where(goes_on & before.stopped[place], 0, remaining - count_before)
    rows = dataclasses.replace(rows, length=rows.length + count_before)
    keys = row_keys(material)
    prefix = first_tokens(state.prefix, window.prefix_tokens)

    def feed_and_draw(carry: _Carry) -> _Carry:
        count = carry.sampled.count
        hidden, own = decoder.extend(
            config,
            params,
            carry.last_token[:, None],
            carry.active.astype(jnp.int32),
            carry.own,
            rows.length + count,
            prefix,
            rows.prefix_length,
            rows.group,
            max_rows_per_prefix=min(group_size, width),
            backend=backend,
        )
        logits = decoder.logits(config, params, hidden[:, 0])
        token, log_prob = draw(rule, token_keys(keys, rows.position + count + 1), logits)
        token = jnp.where(carry.active, token, carry.last_token)
        stop = carry.active & jnp.any(token[:, None] == stop_ids, axis=1)
        count = count + carry.active
        sampled = Sampled(
            carry.sampled.token.at[carry.step].set(token),
            carry.sampled.log_prob.at[carry.step].set(log_prob),
            count,
            carry.sampled.stopped | stop,
        )
        active = carry.active & ~stop & (count < remaining)
        return _Carry(carry.step + 1, active, token, own, sampled)

    own = take_rows(state.own, rows.index, window.own_tokens)
    start = _Carry(jnp.int32(0), remaining > 0, last_token, own, nothing_sampled(steps, width))
    end = jax.lax.while_loop(lambda c: (c.step < steps) & jnp.any(c.active), feed_and_draw, start)
    state = dataclasses.replace(state, own=put_rows(state.own, rows.index, end.own))
    return _pin(state, sharding), _pin(end.sampled, NamedSharding(sharding.mesh, PartitionSpec()))


def _pin(tree: T, sharding: NamedSharding) -> T:
    """Where the results live: buffers are used again only if they stay as they were split."""
    return jax.lax.with_sharding_constraint(tree, sharding)
