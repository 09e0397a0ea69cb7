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
    chunk = _chunk_positions(hidden, chunk_tokens)

    def one(_, xs):
        h, y = xs
        z = head_logits(h, head) / temperature
        maximum = jnp.max(z, axis=-1)
        # Entropy from logits below their maximum: where one token is nearly certain nothing large cancels.
        below = z - maximum[..., None]
        weights = jnp.exp(below)
        total = jnp.sum(weights, axis=-1)
        entropy = jnp.log(total) - jnp.sum(weights * below, axis=-1) / total
        at_target = jnp.sum(jnp.where(_is_target(z, y), below, 0.0), axis=-1)
        return None, (at_target - jnp.log(total), entropy, maximum + jnp.log(total))

    _, outputs = jax.lax.scan(one, None, (_split(hidden, chunk, -2), _split(targets, chunk, -1)))
    log_prob, entropy, log_normalizer = (_join(x, length, -1) for x in outputs)
    return (log_prob, entropy), (hidden, head, targets, temperature, log_normalizer, entropy)


def _backward(chunk_tokens, saved, cotangents):
    hidden, head, targets, temperature, log_normalizer, entropy = saved
    length = hidden.shape[-2]
    chunk = _chunk_positions(hidden, chunk_tokens)

    def one(head_gradient, xs):
        h, y, normalizer, entropy, d_log_prob, d_entropy = xs
        log_p = head_logits(h, head) / temperature - normalizer[..., None]
        from_log_prob = jnp.where(_is_target(log_p, y), d_log_prob[..., None], 0.0)
        from_both = jnp.exp(log_p) * (d_log_prob[..., None] + d_entropy[..., None] * (log_p + entropy[..., None]))
        dz = ((from_log_prob - from_both) / temperature).astype(h.dtype)
        dh = jnp.einsum("...v,vd->...d", dz, head.astype(h.dtype), preferred_element_type=jnp.float32)
        flat_dz, flat_h = dz.reshape(-1, dz.shape[-1]), h.reshape(-1, h.shape[-1])
        head_gradient += jnp.einsum("nv,nd->vd", flat_dz, flat_h, preferred_element_type=jnp.float32)
        return head_gradient, dh.astype(h.dtype)

    by_token = (targets, log_normalizer, entropy, *cotangents)
    xs = (_split(hidden, chunk, -2), *(_split(x, chunk, -1) for x in by_token))
    head_gradient, d_hidden = jax.lax.scan(one, jnp.zeros(head.shape, jnp.float32), xs)
    return _join(d_hidden, length, -2), head_gradient.astype(head.dtype), None, jnp.zeros_like(temperature)


_chunked.defvjp(_forward, _backward)


def _is_target(logits: Array, targets: Array) -> Array:
    return jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1) == targets[..., None]


def _chunk_positions(hidden: Array, chunk_tokens: int) -> int:
    *batch, length, _ = hidden.shape
    rows = 1
    for size in batch:
        rows *= size
    return max(1, min(length, chunk_tokens // max(rows, 1)))


def _split(x: Array, chunk: int, axis: int) -> Array:
    """Pad the token axis to a multiple of ``chunk`` and move the chunks to the front."""
    axis %= x.ndim
    length = x.shape[axis]
    chunks = -(-length // chunk)
    padding = [(0, 0)] * x.ndim
    padding[axis] = (0, chunks * chunk - length)
    padded = jnp.pad(x, padding).reshape(*x.shape[:axis], chunks, chunk, *x.shape[axis + 1 :])
    return jnp.moveaxis(padded, axis, 0)


def _join(x: Array, length: int, axis: int) -> Array:
    """Undo ``_split``."""
    axis %= x.ndim - 1
    x = jnp.moveaxis(x, 0, axis)
    x = x.reshape(*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :])
    return jax.lax.slice_in_dim(x, 0, length, axis=axis)
