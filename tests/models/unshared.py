"""The plain computation that shared-prefix log-probs must equal: every member by itself, prefix and all."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from rlagents.models import DecoderConfig, empty_kv, extend, logits
from rlagents.types import Sequences


@functools.partial(jax.jit, static_argnums=0)
def full_logits(config: DecoderConfig, params, tokens):
    """Logits ``[n, t, v]`` of whole sequences ``[n, t]`` in a single call, without prefix or cache."""
    tokens = jnp.asarray(tokens)
    rows, length = tokens.shape
    nothing = jnp.zeros(rows, jnp.int32)
    hidden, _ = extend(
        config,
        params,
        tokens,
        jnp.full(rows, length),
        empty_kv(config, rows, 1),
        nothing,
        empty_kv(config, 1, 1),
        jnp.zeros(1, jnp.int32),
        nothing,
    )
    return logits(config, params, hidden)


def unshared_log_probs(config: DecoderConfig, params, sequences: Sequences, temperature):
    """What ``token_log_probs`` gives, from ``full_logits`` of each member's own unpadded sequence."""
    p, g, t = sequences.tokens.shape
    log_prob, entropy = jnp.zeros((p, g, t)), jnp.zeros((p, g, t))
    for i, j in np.ndindex(p, g):
        start, length = int(sequences.prefix_length[i]), int(sequences.length[i, j])
        if length < 2:
            continue
        whole = jnp.concatenate([sequences.prefix[i, :start], sequences.tokens[i, j, :length]])
        log_p = jax.nn.log_softmax(full_logits(config, params, whole[None])[0] / temperature)
        log_p = log_p[start : start + length - 1]
        at_token = jnp.take_along_axis(log_p, sequences.tokens[i, j, 1:length, None], axis=1)[:, 0]
        log_prob = log_prob.at[i, j, 1:length].set(at_token)
        entropy = entropy.at[i, j, 1:length].set(-jnp.sum(jnp.exp(log_p) * log_p, axis=-1))
    return log_prob, entropy


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
