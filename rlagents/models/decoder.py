"""The decoder as the sampler uses it: prefill a prefix, extend rows by tokens, logits."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rlagents.models.attention import NOWHERE, Backend, OwnTokens, Partial, Queries, Source, Window, attend, merge
from rlagents.models.blockwise import xla
from rlagents.models.config import DecoderConfig
from rlagents.models.head import head_logits, without_padding
from rlagents.models.layers import SAVE_ATTENTION, RematPolicy, through_layers
from rlagents.types import Params


class KV(NamedTuple):
    """Keys, already rotated to their absolute positions, and values of all layers. ``c`` are key-value heads.

    Heads come before positions: that is how the products of attention read a cache without transposing it.
    """

    key: Float[Array, "layers n c length k"]
    value: Float[Array, "layers n c length k"]


def empty_kv(config: DecoderConfig, rows: int, length: int) -> KV:
    """Zeros, in the compute dtype."""
    shape = (config.num_layers, rows, config.num_kv_heads, length, config.head_dim)
    return KV(jnp.zeros(shape, config.compute_dtype), jnp.zeros(shape, config.compute_dtype))


def prefill(
    config: DecoderConfig,
    params: Params,
    tokens: Int[Array, "n l"],
    lengths: Int[Array, " n"],
    *,
    backend: Backend = xla,
    remat_policy: RematPolicy = SAVE_ATTENTION,
    layer_chunk_tokens: int | None = None,
) -> KV:
    """Keys and values of prefixes padded on the right; entries from ``lengths`` on are finite but mean nothing.

    ``layer_chunk_tokens`` bounds the tokens that pass a layer at once (see ``layers``).
    """
    position = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)[:, None]

    def gather(queries: Queries, key: Array, value: Array, _: None, window: Window) -> tuple[Array, KV]:
        own = OwnTokens(key, value, queries.position)
        return attend(backend, config.attention_scale, queries, (own,), window), KV(key, value)

    tokens = jnp.where(position < lengths[:, None, None], tokens[:, None], 0)
    _, kept = through_layers(config, params, tokens, position, gather, None, remat_policy, layer_chunk_tokens)
    return KV(*(x[:, :, 0] for x in kept))


def extend(
    config: DecoderConfig,
    params: Params,
    tokens: Int[Array, "n t"],
    counts: Int[Array, " n"],
    own: KV,
    own_length: Int[Array, " n"],
    prefix: KV,
    prefix_length: Int[Array, " m"],
    group: Int[Array, " n"],
    *,
    max_rows_per_prefix: int | None = None,
    backend: Backend = xla,
) -> tuple[Float[Array, "n t d"], KV]:
    """Feed ``counts[r]`` tokens to every row; ``t = 1`` is the decode step. Carries no gradient.

    Token ``i`` of row ``r`` is at position ``prefix_length[group[r]] + own_length[r] + i``. It attends to prefix slot
    ``group[r]``, to the first ``own_length[r]`` entries of ``own[:, r]`` and to the new tokens up to itself. Prefixes
    are read where they lie: queries go to their slot and come back, keys and values are never copied to rows.

    ``max_rows_per_prefix`` bounds how many rows of this call share a slot; None means all of them could. A good bound
    makes the call cheaper; rows beyond a wrong one get NaN. ``group[r]`` past the last slot is allowed for a row that
    does not matter.

    Returns hidden states after the final norm (those from ``counts`` on mean nothing) and ``own`` with the new
    entries at ``own_length .. own_length + counts``; entries beyond its capacity are dropped.
    """
    rows, new = tokens.shape
    capacity = own.key.shape[3]
    start = jnp.take(prefix_length, group, mode="clip")
    step = jnp.arange(new)
    position = (start + own_length)[:, None] + step
    past = jnp.arange(capacity)
    past_position = jnp.where(past < own_length[:, None], start[:, None] + past, NOWHERE)
    slot = jnp.arange(prefix.key.shape[3])
    slot_position = jnp.where(slot < prefix_length[:, None], slot, NOWHERE)
    seats = _seats(group, prefix_length.shape[0], rows if max_rows_per_prefix is None else max_rows_per_prefix)

    def gather(queries: Queries, key: Array, value: Array, extra: tuple[KV, KV], window: Window) -> tuple[Array, KV]:
        before, shared = (KV(*(x[:, None] for x in kv)) for kv in extra)

        def partial(queries: Queries, source: Source) -> Partial:
            return backend.forward(config.attention_scale, queries, source, window)

        parts = [
            _to_rows(partial(_to_slots(queries, seats), Source(*shared, slot_position[:, None])), seats),
            partial(queries, Source(*before, past_position[:, None])),
            partial(queries, OwnTokens(key, value, position[:, None])),
        ]
        return merge(parts)[0].astype(queries.query.dtype), KV(key[:, 0], value[:, 0])

    real = step < counts[:, None]
    save_all = jax.checkpoint_policies.everything_saveable
    fed = jnp.where(real, tokens, 0)[:, None]
    hidden, added = through_layers(config, params, fed, position[:, None], gather, (own, prefix), save_all)
    place = jnp.where(real, own_length[:, None] + step, capacity)
    row = jnp.arange(rows)[:, None]

    def write(old: Array, added: Array) -> Array:
        # Indices apart from each other put their axes first.
        return old.at[:, row, :, place].set(jnp.moveaxis(added, (1, 3), (0, 1)).astype(old.dtype), mode="drop")

    return jax.lax.stop_gradient((hidden[:, 0], jax.tree.map(write, own, added)))


def logits(config: DecoderConfig, params: Params, hidden: Float[Array, "*batch d"]) -> Float[Array, "*batch v"]:
    """Logits at temperature 1, float32, of hidden states that went through the final norm.

    Where the vocabulary is padded, so is ``v``; logits past ``vocab_size`` are below all others, and are never drawn.
    """
    return without_padding(head_logits(hidden, head_weight(config, params)), config.vocab_size)


def head_weight(config: DecoderConfig, params: Params) -> Float[Array, "v d"]:
    """The head's matrix: the embedding where they are tied."""
    return params["embedding"] if config.tie_embeddings else params["head"]


class _Seats(NamedTuple):
    row: Int[Array, "m seats"]
    """Which row sits here; the number of rows where none does."""
    seat: Int[Array, " n"]
    """``slot * seats + seat`` of every row; past the end for a row that found no seat, 0 for one of no slot."""


def _seats(group: Int[Array, " n"], slots: int, seats: int) -> _Seats:
    rows = group.shape[0]
    of_slot = group[:, None] == jnp.arange(slots)
    rank = jnp.sum(jnp.where(of_slot, jnp.cumsum(of_slot, axis=0), 0), axis=1) - 1
    seated = (rank >= 0) & (rank < seats)
    table = jnp.full((slots, seats), rows).at[group, jnp.where(seated, rank, seats)].set(jnp.arange(rows), mode="drop")
    no_seat = jnp.where(rank < 0, 0, slots * seats)
    return _Seats(table, jnp.where(seated, group * seats + rank, no_seat))


def _to_slots(queries: Queries, seats: _Seats) -> Queries:
    """``[n 1 ..] -> [m seats ..]``."""
    return jax.tree.map(lambda x: jnp.take(x[:, 0], seats.row, axis=0, mode="fill", fill_value=0), queries)


def _to_rows(partial: Partial, seats: _Seats) -> Partial:
    """``[m seats ..] -> [n 1 ..]``, NaN for a row that found no seat."""

    def move(x: Array) -> Array:
        x = x.reshape(-1, *x.shape[2:])
        return jnp.take(x, seats.seat, axis=0, mode="fill", fill_value=jnp.nan)[:, None]

    return jax.tree.map(move, partial)
