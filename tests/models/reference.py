"""The decoder once more, written to be read: whole sequences, one at a time, nothing shared, stacked or rematerialised.

Its gradients are JAX's own. The judge of the shared-prefix computation.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from rlagents.models import DecoderConfig
from rlagents.types import Sequences


def _norm(config: DecoderConfig, x, weight):
    scaled = x / jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True) + config.rms_epsilon)
    return scaled * (config.norm_offset + weight)


def _rotate(x, theta, scaling):
    """``x [t h k]`` at positions ``0 .. t``, as a complex rotation."""
    t, _, k = x.shape
    frequencies = theta ** (-np.arange(0, k, 2) / k)
    angles = np.outer(np.arange(t), frequencies if scaling is None else scaling(frequencies))
    pairs = (x[..., : k // 2] + 1j * x[..., k // 2 :]) * jnp.exp(1j * angles)[:, None]
    return jnp.concatenate([pairs.real, pairs.imag], axis=-1)


def _attention(config: DecoderConfig, w, x, slides):
    t = x.shape[0]
    query, key, value = (jnp.einsum("td,dhk->thk", x, w[name]) for name in ("query", "key", "value"))
    if config.qkv_bias:
        query, key, value = query + w["query_bias"], key + w["key_bias"], value + w["value_bias"]
    if config.qk_norm:
        query = _norm(config, query, w["query_norm"]["weight"])
        key = _norm(config, key, w["key_norm"]["weight"])
    local = slides and config.sliding_rope_theta is not None
    rope = (config.sliding_rope_theta, None) if local else (config.rope_theta, config.rope_scaling)
    query, key = _rotate(query, *rope), _rotate(key, *rope)
    key, value = (jnp.repeat(x, config.num_heads // config.num_kv_heads, axis=1) for x in (key, value))
    distance = np.arange(t)[:, None] - np.arange(t)
    seen = (distance >= 0) & (distance < (config.sliding_window if slides else t))
    logits = jnp.einsum("qhk,shk->hqs", query, key) * config.attention_scale
    weights = jax.nn.softmax(jnp.where(seen, logits, -jnp.inf), axis=-1)
    return jnp.einsum("qhk,hkd->qd", jnp.einsum("hqs,shk->qhk", weights, value), w["output"])


def reference_logits(config: DecoderConfig, params, tokens):
    """Logits ``[t v]`` of ``tokens [t]``."""
    x = params["embedding"][tokens] * config.embedding_scale
    for layer in range(config.num_layers):
        w = jax.tree.map(lambda leaf, layer=layer: leaf[layer], params["layers"])
        slides = bool(config.sliding_layers) and config.sliding_layers[layer]
        added = _attention(config, w["attention"], _norm(config, x, w["attention_norm"]["weight"]), slides)
        x = x + (_norm(config, added, w["post_attention_norm"]["weight"]) if config.post_norms else added)
        y, mlp = _norm(config, x, w["mlp_norm"]["weight"]), w["mlp"]
        added = (config.activation(y @ mlp["gate"]) * (y @ mlp["up"])) @ mlp["down"]
        x = x + (_norm(config, added, w["post_mlp_norm"]["weight"]) if config.post_norms else added)
    head = params["embedding" if config.tie_embeddings else "head"]
    return _norm(config, x, params["final_norm"]["weight"]) @ head.T


def reference_log_probs(config: DecoderConfig, params, sequences: Sequences, temperature):
    """What ``token_log_probs`` gives. ``sequences`` are concrete, the rest may be traced."""
    p, g, t = sequences.tokens.shape
    start, length = np.asarray(sequences.prefix_length), np.asarray(sequences.length)
    prefix, tokens = np.asarray(sequences.prefix), np.asarray(sequences.tokens)
    whole = np.zeros((p, g, sequences.prefix.shape[1] + t), np.int32)
    for i, j in np.ndindex(p, g):
        joined = np.concatenate([prefix[i, : start[i]], tokens[i, j, : length[i, j]]])
        whole[i, j, : len(joined)] = joined
    of_sequence = functools.partial(reference_logits, config, params)
    log_p = jax.nn.log_softmax(jax.vmap(jax.vmap(of_sequence))(whole) / temperature)
    # Of the token at t by the logits one position before it.
    before = np.maximum(start[:, None] + np.arange(t) - 1, 0)
    log_p = jnp.take_along_axis(log_p, before[:, None, :, None], axis=2)
    real = (np.arange(t) > 0) & (np.arange(t) < length[..., None])
    at_token = jnp.take_along_axis(log_p, tokens[..., None], axis=-1)[..., 0]
    return jnp.where(real, at_token, 0), jnp.where(real, -jnp.sum(jnp.exp(log_p) * log_p, axis=-1), 0)
