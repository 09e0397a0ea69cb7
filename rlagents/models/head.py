"""Log-probabilities and entropies without ever holding the logits of all tokens.

The head runs over chunks of positions, forwards and backwards. With ``z = hidden head^T / temperature`` and
``p = softmax(z)``, the backward pass recomputes ``z`` chunk by chunk and uses

    d log p_y / d z_j = [j = y] - p_j          d H / d z_j = -p_j (log p_j + H)

so one chunk's logits ``[*batch chunk v]`` are all that exists at any time (compare Liger-Kernel's fused linear losses).
Where there is one chunk only, its logits are kept, and the backward pass spares a product of three.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rlagents.models.chunks import chunk_positions, join, one_row, split


def head_logits(hidden: Float[Array, "*batch d"], head: Float[Array, "v d"]) -> Float[Array, "*batch v"]:
    """Logits at temperature 1: a product in the dtype of ``hidden`` accumulated in float32."""
    return jnp.einsum("...d,vd->...v", hidden, head.astype(hidden.dtype), preferred_element_type=jnp.float32)


def log_prob_and_entropy(
    hidden: Float[Array, "*batch t d"],
    head: Float[Array, "v d"],
    targets: Int[Array, "*batch t"],
    temperature: float | Float[Array, ""],
    chunk_tokens: int,
) -> tuple[Float[Array, "*batch t"], Float[Array, "*batch t"]]:
    """Log-probability of ``targets`` and entropy (nats) under ``softmax(hidden head^T / temperature)``, float32.

    Chunks hold whole columns of positions over the batch axes, which stay as they are so that a sharded batch stays
    sharded: ``chunk_tokens // batch size`` positions each, at least one. The result does not depend on
    ``chunk_tokens``. Carries gradient to ``hidden`` and ``head`` only.
    """
    chunk = chunk_positions(hidden.shape[:-2], hidden.shape[-2], chunk_tokens)
    return _chunked(hidden, head, targets, jnp.asarray(temperature, jnp.float32), chunk)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _chunked(hidden, head, targets, temperature, chunk) -> Any:
    return _forward(hidden, head, targets, temperature, chunk)[0]


def _forward(hidden, head, targets, temperature, chunk):
    length = hidden.shape[-2]
    if chunk >= length:
        z = head_logits(one_row(hidden), head) / temperature
        outputs = tuple(x.reshape(targets.shape) for x in _statistics(z, targets.reshape(-1)))
        return outputs[:2], (hidden, head, targets, temperature, z, *outputs[1:])

    def one(_, xs):
        z = head_logits(one_row(xs[0]), head) / temperature
        return None, tuple(x.reshape(xs[1].shape) for x in _statistics(z, xs[1].reshape(-1)))

    _, outputs = jax.lax.scan(one, None, (split(hidden, chunk, -2), split(targets, chunk, -1)))
    log_prob, *others = (join(x, length, -1) for x in outputs)
    return (log_prob, others[0]), (hidden, head, targets, temperature, None, *others)


def _statistics(z: Float[Array, "n v"], targets: Int[Array, " n"]) -> tuple[Array, Array, Array]:
    """Log-probability of targets, entropy, and log-normalizer."""
    maximum = jnp.max(z, axis=-1)
    # Entropy from logits below their maximum: where one token is nearly certain nothing large cancels.
    below = z - maximum[:, None]
    weights = jnp.exp(below)
    total = jnp.sum(weights, axis=-1)
    entropy = jnp.log(total) - jnp.sum(weights * below, axis=-1) / total
    at_target = jnp.sum(jnp.where(_is_target(z, targets), below, 0.0), axis=-1)
    return at_target - jnp.log(total), entropy, maximum + jnp.log(total)


def _backward(chunk, saved, cotangents):
    hidden, head, targets, temperature, logits, entropy, log_normalizer = saved
    length = hidden.shape[-2]

    def gradients(h, z, y, entropy, normalizer, d_log_prob, d_entropy):
        log_p = z - normalizer[:, None]
        from_log_prob = jnp.where(_is_target(log_p, y), d_log_prob[:, None], 0.0)
        from_both = jnp.exp(log_p) * (d_log_prob[:, None] + d_entropy[:, None] * (log_p + entropy[:, None]))
        dz = ((from_log_prob - from_both) / temperature).astype(h.dtype)
        dh = jnp.einsum("nv,vd->nd", dz, head.astype(h.dtype), preferred_element_type=jnp.float32)
        return dh.astype(h.dtype), jnp.einsum("nv,nd->vd", dz, h, preferred_element_type=jnp.float32)

    by_token = (targets, entropy, log_normalizer, *cotangents)
    if logits is not None:
        dh, d_head = gradients(one_row(hidden), logits, *(x.reshape(-1) for x in by_token))
        return dh.reshape(hidden.shape), d_head.astype(head.dtype), None, jnp.zeros_like(temperature)

    def one(d_head, xs):
        h = one_row(xs[0])
        z = head_logits(h, head) / temperature
        dh, more = gradients(h, z, *(x.reshape(-1) for x in xs[1:]))
        return d_head + more, dh.reshape(xs[0].shape)

    xs = (split(hidden, chunk, -2), *(split(x, chunk, -1) for x in by_token))
    d_head, d_hidden = jax.lax.scan(one, jnp.zeros(head.shape, jnp.float32), xs)
    return join(d_hidden, length, -2), d_head.astype(head.dtype), None, jnp.zeros_like(temperature)


_chunked.defvjp(_forward, _backward)


def _is_target(logits: Array, targets: Array) -> Array:
    return jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1) == targets[..., None]
