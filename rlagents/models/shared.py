"""The decoder as the learner uses it: log-probabilities of groups whose members share a prefix.

The prefix of a group is computed once a layer; members attend to its keys and values where they lie, and gradients of
all members sum through it. ``token_log_probs`` is the composition of its two halves, which may also be taken apart:

    kv, pull = jax.vjp(lambda params: prefix_kv(config, params, prefix, prefix_length), params)
    for each slice of members: add up gradients of member_log_probs with respect to params and kv
    (gradient of params) += pull(gradient of kv)
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rlagents.models.attention import NOWHERE, Backend, Queries, Source, Window, attend
from rlagents.models.blockwise import xla
from rlagents.models.config import DecoderConfig
from rlagents.models.decoder import KV, head_weight, prefill
from rlagents.models.head import log_prob_and_entropy
from rlagents.models.layers import SAVE_ATTENTION, RematPolicy, through_layers
from rlagents.types import Params, Sequences

HEAD_CHUNK_TOKENS = 256
"""A chunk of logits that stays in cache while it is used several times: 8 MB at a vocabulary of 8,192. On accelerators
longer chunks, which read the head less often, pay off."""


def prefix_kv(
    config: DecoderConfig,
    params: Params,
    prefix: Int[Array, "p l"],
    prefix_length: Int[Array, " p"],
    *,
    backend: Backend = xla,
    remat_policy: RematPolicy = SAVE_ATTENTION,
    mlp_chunk_tokens: int | None = None,
) -> KV:
    """Keys and values of every group's prefix; differentiable in ``params``."""
    return prefill(
        config,
        params,
        prefix,
        prefix_length,
        backend=backend,
        remat_policy=remat_policy,
        mlp_chunk_tokens=mlp_chunk_tokens,
    )


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
    mlp_chunk_tokens: int | None = None,
) -> tuple[Float[Array, "p g t"], Float[Array, "p g t"]]:
    """Log-probabilities and entropies (nats, float32) of member tokens, given the prefixes' keys and values.

    ``log_prob[p, g, t]`` is of ``tokens[p, g, t]`` under ``softmax(logits / temperature)`` given everything before it,
    ``entropy`` of that distribution. Both are 0 with zero gradient at ``t = 0`` and from ``length`` on. Differentiable
    in ``params`` and ``kv``. ``head_chunk_tokens`` bounds the tokens whose logits exist at once (see ``head``),
    ``mlp_chunk_tokens`` those that pass an MLP at once (see ``layers``).
    """
    p, g, t = sequences.tokens.shape
    step = jnp.arange(t)
    real = step < sequences.length[..., None]
    position = jnp.broadcast_to(sequences.prefix_length[:, None, None] + step, (p, g, t))
    slot = jnp.arange(kv.key.shape[3])
    slot_position = jnp.where(slot < sequences.prefix_length[:, None], slot, NOWHERE)[:, None]

    def gather(queries: Queries, key: Array, value: Array, extra: KV, window: Window) -> tuple[Array, None]:
        shared = Source(extra.key[:, None], extra.value[:, None], slot_position)
        sources = (shared, Source(key, value, position))
        return attend(backend, config.attention_scale, queries, sources, window), None

    tokens = jnp.where(real, sequences.tokens, 0)
    hidden, _ = through_layers(config, params, tokens, position, gather, kv, remat_policy, mlp_chunk_tokens)
    log_prob, entropy = log_prob_and_entropy(
        hidden[:, :, :-1],
        head_weight(config, params),
        tokens[:, :, 1:],
        temperature,
        head_chunk_tokens,
    )
    predicted = real[:, :, 1:]

    def place(x: Array) -> Array:
        return jnp.pad(jnp.where(predicted, x, 0.0), ((0, 0), (0, 0), (1, 0)))

    return place(log_prob), place(entropy)


def token_log_probs(
    config: DecoderConfig,
    params: Params,
    sequences: Sequences,
    temperature: float | Float[Array, ""],
    *,
    head_chunk_tokens: int = HEAD_CHUNK_TOKENS,
    backend: Backend = xla,
    remat_policy: RematPolicy = SAVE_ATTENTION,
    mlp_chunk_tokens: int | None = None,
) -> tuple[Float[Array, "p g t"], Float[Array, "p g t"]]:
    """Log-probabilities and entropies of member tokens; see ``member_log_probs``. Differentiable in ``params``."""
    kv = prefix_kv(
        config,
        params,
        sequences.prefix,
        sequences.prefix_length,
        backend=backend,
        remat_policy=remat_policy,
        mlp_chunk_tokens=mlp_chunk_tokens,
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
        mlp_chunk_tokens=mlp_chunk_tokens,
    )
