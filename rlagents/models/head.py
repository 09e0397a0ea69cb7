"""Log-probabilities and entropies without ever holding the logits of all tokens.

The head runs over chunks of positions, forwards and backwards. With ``z = hidden head^T / temperature`` and
``p = softmax(z)``, the backward pass recomputes ``z`` chunk by chunk and uses

    d log p_y / d z_j = [j = y] - p_j          d H / d z_j = -p_j (log p_j + H)

so one chunk's logits ``[*batch chunk v]`` are all that exists at any time (compare Liger-Kernel's fused linear losses).
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rlagents.models.chunks import chunk_positions, join, split


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
    return _chunked(hidden, head, targets, jnp.asarray(temperature, jnp.float32), chunk_tokens)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _chunked(hidden, head, targets, temperature, chunk_tokens) -> Any:
    return _forward(hidden, head, targets, temperature, chunk_tokens)[0]


def _forward(hidden, head, targets, temperature, chunk_tokens):
    length = hidden.shape[-2]
    chunk = chunk_positions(hidden.shape[:-2], length, chunk_tokens)

    def one(_, xs):
        h, y = _rows(xs[0], 1), _rows(xs[1], 0)
        z = head_logits(h, head) / temperature
        maximum = jnp.max(z, axis=-1)
        # Entropy from logits below their maximum: where one token is nearly certain nothing large cancels.
        below = z - maximum[:, None]
        weights = jnp.exp(below)
        total = jnp.sum(weights, axis=-1)
        entropy = jnp.log(total) - jnp.sum(weights * below, axis=-1) / total
        at_target = jnp.sum(jnp.where(_is_target(z, y), below, 0.0), axis=-1)
        outputs = (at_target - jnp.log(total), entropy, maximum + jnp.log(total))
        return None, tuple(x.reshape(xs[1].shape) for x in outputs)

    _, outputs = jax.lax.scan(one, None, (split(hidden, chunk, -2), split(targets, chunk, -1)))
    log_prob, entropy, log_normalizer = (join(x, length, -1) for x in outputs)
    return (log_prob, entropy), (hidden, head, targets, temperature, log_normalizer, entropy)


def _backward(chunk_tokens, saved, cotangents):
    hidden, head, targets, temperature, log_normalizer, entropy = saved
    length = hidden.shape[-2]
    chunk = chunk_positions(hidden.shape[:-2], length, chunk_tokens)

    def one(head_gradient, xs):
        h = _rows(xs[0], 1)
        y, normalizer, entropy, d_log_prob, d_entropy = (_rows(x, 0) for x in xs[1:])
        log_p = head_logits(h, head) / temperature - normalizer[:, None]
        from_log_prob = jnp.where(_is_target(log_p, y), d_log_prob[:, None], 0.0)
        from_both = jnp.exp(log_p) * (d_log_prob[:, None] + d_entropy[:, None] * (log_p + entropy[:, None]))
        dz = ((from_log_prob - from_both) / temperature).astype(h.dtype)
        dh = jnp.einsum("nv,vd->nd", dz, head.astype(h.dtype), preferred_element_type=jnp.float32)
        head_gradient += jnp.einsum("nv,nd->vd", dz, h, preferred_element_type=jnp.float32)
        return head_gradient, dh.astype(h.dtype).reshape(xs[0].shape)

    by_token = (targets, log_normalizer, entropy, *cotangents)
    xs = (split(hidden, chunk, -2), *(split(x, chunk, -1) for x in by_token))
    head_gradient, d_hidden = jax.lax.scan(one, jnp.zeros(head.shape, jnp.float32), xs)
    return join(d_hidden, length, -2), head_gradient.astype(head.dtype), None, jnp.zeros_like(temperature)


_chunked.defvjp(_forward, _backward)


def _rows(x: Array, trailing: int) -> Array:
    """All tokens of a chunk on one axis, so that every product is one of two matrices."""
    return x.reshape(-1, *x.shape[x.ndim - trailing :])


def _is_target(logits: Array, targets: Array) -> Array:
    return jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1) == targets[..., None]
