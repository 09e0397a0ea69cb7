"""The decoder as the learner uses it: log-probabilities of groups whose members share a prefix.

The prefix of a group is computed once a layer; members attend to its keys and values where they lie, and gradients of
all members sum through it. ``token_log_probs`` is the composition of its two halves, which may also be taken apart:

    kv, pull = jax.vjp(lambda params: prefix_kv(config, params, prefix, prefix_length), params)
    for each slice of members: add up gradients of member_log_probs with respect to params and kv
    (gradient of params) += pull(gradient of kv)

``member_log_probs`` in turn is ``hidden_log_probs`` of ``member_hidden``, whose rows a loss may take one by one.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rlagents.models.attention import NOWHERE, Backend, OwnTokens, Queries, Source, Window, attend
from rlagents.models.blockwise import xla
from rlagents.models.config import DecoderConfig
from rlagents.models.decoder import KV, head_weight, prefill
from rlagents.models.head import log_prob_and_entropy
from rlagents.models.layers import SAVE_ATTENTION, RematPolicy, through_layers
from rlagents.types import Params, Sequences

HEAD_CHUNK_TOKENS = 256
"""A chunk of logits that stays in cache while it is used several times: 8 MB at a vocabulary of 8,192. On accelerators
longer chunks, which read the head less often, pay off."""
LAYER_CHUNK_TOKENS = 1536
"""Likewise of a layer's results: 6 MB at an MLP of 1,024."""


def prefix_kv(
    config: DecoderConfig,
    params: Params,
    prefix: Int[Array, "p l"],
    prefix_length: Int[Array, " p"],
    *,
    backend: Backend = xla,
    remat_policy: RematPolicy = SAVE_ATTENTION,
    layer_chunk_tokens: int | None = LAYER_CHUNK_TOKENS,
) -> KV:
    """Keys and values of every group's prefix; differentiable in ``params``."""
    return prefill(
        config,
        params,
        prefix,
        prefix_length,
        backend=backend,
        remat_policy=remat_policy,
        layer_chunk_tokens=layer_chunk_tokens,
    )


def member_hidden(
    config: DecoderConfig,
    params: Params,
    kv: KV,
    sequences: Sequences,
    *,
    backend: Backend = xla,
    remat_policy: RematPolicy = SAVE_ATTENTION,
    layer_chunk_tokens: int | None = LAYER_CHUNK_TOKENS,
) -> Float[Array, "p g t d"]:
    """Hidden states of members after the final norm, given the prefixes' keys and values; finite from ``length`` on.

    Differentiable in ``params`` and ``kv``. ``layer_chunk_tokens`` bounds the tokens that pass a layer at once (see
    ``layers``).
    """
    p, g, t = sequences.tokens.shape
    step = jnp.arange(t)
    position = jnp.broadcast_to(sequences.prefix_length[:, None, None] + step, (p, g, t))
    slot = jnp.arange(kv.key.shape[3])
    slot_position = jnp.where(slot < sequences.prefix_length[:, None], slot, NOWHERE)[:, None]
    # The same in every layer; so each chunk of prompts gets its own.
    slot_positions = jnp.broadcast_to(slot_position, (config.num_layers, *slot_position.shape))

    def gather(
        queries: Queries, key: Array, value: Array, extra: tuple[KV, Array], window: Window
    ) -> tuple[Array, None]:
        prefix, slot_position = extra
        shared = Source(prefix.key[:, None], prefix.value[:, None], slot_position)
        sources = (shared, OwnTokens(key, value, queries.position))
        return attend(backend, config.attention_scale, queries, sources, window), None

    tokens = jnp.where(step < sequences.length[..., None], sequences.tokens, 0)
    extras = (kv, slot_positions)
    return through_layers(config, params, tokens, position, gather, extras, remat_policy, layer_chunk_tokens)[0]


def hidden_log_probs(
    hidden: Float[Array, "p g t d"],
    head: Float[Array, "v d"],
    sequences: Sequences,
    temperature: float | Float[Array, ""],
    *,
    vocab_size: int,
    head_chunk_tokens: int = HEAD_CHUNK_TOKENS,
) -> tuple[Float[Array, "p g t"], Float[Array, "p g t"]]:
    """Log-probabilities and entropies (nats, float32) of member tokens, given their hidden states and the head.

    ``log_prob[p, g, t]`` is of ``tokens[p, g, t]`` under ``softmax(logits / temperature)`` given everything before it,
    ``entropy`` of that distribution. Both are 0 with zero gradient at ``t = 0`` and from ``length`` on. Differentiable
    in ``hidden`` and ``head``, whose rows from ``vocab_size`` on are padding. ``head_chunk_tokens`` bounds the tokens
    whose logits exist at once (see ``head``). Reads tokens and lengths of members only.
    """
    real = jnp.arange(sequences.tokens.shape[2]) < sequences.length[..., None]
    tokens = jnp.where(real, sequences.tokens, 0)[:, :, 1:]
    before = hidden[:, :, :-1]
    outputs = log_prob_and_entropy(before, head, tokens, temperature, head_chunk_tokens, vocab_size=vocab_size)
    log_prob, entropy = (jnp.pad(jnp.where(real[:, :, 1:], x, 0.0), ((0, 0), (0, 0), (1, 0))) for x in outputs)
    return log_prob, entropy


def member_log_probs(
    config: DecoderConfig,
    params: Params,
    kv: KV,
    sequences: Sequences,
    temperature: float | Float[Array, ""],
    *,
    head_chunk_tokens: int = HEAD_CHUNK_TOKENS,
    backend: Backend = xla,
    remat_policy: RematPolicy = SAVE_ATTENTION,
    layer_chunk_tokens: int | None = LAYER_CHUNK_TOKENS,
) -> tuple[Float[Array, "p g t"], Float[Array, "p g t"]]:
    """``hidden_log_probs`` of ``member_hidden``. Differentiable in ``params`` and ``kv``."""
    hidden = member_hidden(
        config,
        params,
        kv,
        sequences,
        backend=backend,
        remat_policy=remat_policy,
        layer_chunk_tokens=layer_chunk_tokens,
    )
    head = head_weight(config, params)
    chunk, vocab_size = head_chunk_tokens, config.vocab_size
    return hidden_log_probs(hidden, head, sequences, temperature, vocab_size=vocab_size, head_chunk_tokens=chunk)


def token_log_probs(
    config: DecoderConfig,
    params: Params,
    sequences: Sequences,
    temperature: float | Float[Array, ""],
    *,
    head_chunk_tokens: int = HEAD_CHUNK_TOKENS,
    backend: Backend = xla,
    remat_policy: RematPolicy = SAVE_ATTENTION,
    layer_chunk_tokens: int | None = LAYER_CHUNK_TOKENS,
) -> tuple[Float[Array, "p g t"], Float[Array, "p g t"]]:
    """Log-probabilities and entropies of member tokens; see ``member_log_probs``. Differentiable in ``params``."""
    kv = prefix_kv(
        config,
        params,
        sequences.prefix,
        sequences.prefix_length,
        backend=backend,
        remat_policy=remat_policy,
        layer_chunk_tokens=layer_chunk_tokens,
    )
    return member_log_probs(
        config,
        params,
        kv,
        sequences,
        temperature,
        head_chunk_tokens=head_chunk_tokens,
        backend=backend,
        remat_policy=remat_policy,
        layer_chunk_tokens=layer_chunk_tokens,
    )
