"""Log-probabilities and entropies without ever holding the logits of all tokens.

The head runs over chunks of positions, forwards and backwards. With ``z = hidden head^T / temperature`` and
``p = softmax(z)``, the backward pass recomputes ``z`` chunk by chunk and uses

    d log p_y / d z_j = [j = y] - p_j          d H / d z_j = -p_j (log p_j + H)

so one chunk's logits ``[*batch chunk v]`` are all that exists at any time (compare Liger-Kernel's fused linear losses).
Where there is one chunk only, its logits are kept, and the backward pass spares a product of three.

Where no gradient comes through the entropy, ``dz`` is never formed: its products are those of the softmax's numerators,
which exist already, and of one row a token,

    d hidden = g (head_y - sum_j p_j head_j)   d head_j = sum_n g_n ([j = y_n] - p_nj) hidden_n

with ``g`` the gradient of the log-probability over the temperature.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, Int

from rlagents.models.chunks import chunk_positions, join, one_row, split


def head_logits(hidden: Float[Array, "*batch d"], head: Float[Array, "v d"]) -> Float[Array, "*batch v"]:
    """Logits at temperature 1: a product in the dtype of ``hidden`` accumulated in float32."""
    return jnp.einsum("...d,vd->...v", hidden, head.astype(hidden.dtype), preferred_element_type=jnp.float32)


def without_padding(logits: Float[Array, "*batch v"], vocab_size: int) -> Float[Array, "*batch v"]:
    """Logits of which those from ``vocab_size`` on are so low that their probability and their gradient are exactly 0.

    A mask and no cut: a slice of an axis that is split over devices would move what lies on them.
    """
    if vocab_size >= logits.shape[-1]:
        return logits
    row = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
    return jnp.where(row < vocab_size, logits, _BELOW_ALL)


_BELOW_ALL = -1e30
"""Finite: ``p log p`` of it is 0, where minus infinity would make it NaN."""


def log_prob_and_entropy(
    hidden: Float[Array, "*batch t d"],
    head: Float[Array, "v d"],
    targets: Int[Array, "*batch t"],
    temperature: float | Float[Array, ""],
    chunk_tokens: int,
    *,
    vocab_size: int | None = None,
) -> tuple[Float[Array, "*batch t"], Float[Array, "*batch t"]]:
    """Log-probability of ``targets`` and entropy (nats) under ``softmax(hidden head^T / temperature)``, float32.

    Chunks hold whole columns of positions over the batch axes, which stay as they are so that a sharded batch stays
    sharded: ``chunk_tokens // batch size`` positions each, at least one. The result does not depend on
    ``chunk_tokens``. Rows of ``head`` from ``vocab_size`` on (None: there are none) are padding, which the softmax
    leaves out. Carries gradient to ``hidden`` and ``head`` only; that of padding is exactly 0.
    """
    chunk = chunk_positions(hidden.shape[:-2], hidden.shape[-2], chunk_tokens)
    vocab_size = head.shape[0] if vocab_size is None else vocab_size
    return _chunked(hidden, head, targets, jnp.asarray(temperature, jnp.float32), chunk, vocab_size)


def _scaled(hidden: Array, head: Array, temperature: Array, vocab_size: int) -> Array:
    """Masked after the division: no temperature brings padding back."""
    return without_padding(head_logits(hidden, head) / temperature, vocab_size)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _chunked(hidden, head, targets, temperature, chunk, vocab_size) -> Any:
    return _forward(hidden, head, targets, temperature, chunk, vocab_size)[0]


def _forward(hidden, head, targets, temperature, chunk, vocab_size):
    length = hidden.shape[-2]
    if chunk >= length:
        z = _scaled(one_row(hidden), head, temperature, vocab_size)
        log_prob, entropy, *others = _statistics(z, targets.reshape(-1))
        outputs = (log_prob.reshape(targets.shape), entropy.reshape(targets.shape))
        return outputs, (hidden, head, targets, temperature, outputs[1], (z, *others))

    def one(_, xs):
        z = _scaled(one_row(xs[0]), head, temperature, vocab_size)
        return None, tuple(x.reshape(xs[1].shape) for x in _statistics(z, xs[1].reshape(-1))[:2])

    _, outputs = jax.lax.scan(one, None, (split(hidden, chunk, -2), split(targets, chunk, -1)))
    log_prob, entropy = (join(x, length, -1) for x in outputs)
    return (log_prob, entropy), (hidden, head, targets, temperature, entropy, None)


def _statistics(z: Float[Array, "n v"], targets: Int[Array, " n"]) -> tuple[Array, Array, Array, Array]:
    """Log-probability of targets, entropy, and of the softmax: numerators ``[n v]`` and their sum ``[n]``."""
    maximum = jnp.max(z, axis=-1, keepdims=True)
    # Entropy from logits below their maximum: where one token is nearly certain nothing large cancels.
    below = z - maximum
    weights = jnp.exp(below)
    total = jnp.sum(weights, axis=-1)
    entropy = jnp.log(total) - jnp.sum(weights * below, axis=-1) / total
    at_target = (jnp.take_along_axis(z, targets[:, None], axis=-1) - maximum)[:, 0]
    return at_target - jnp.log(total), entropy, weights, total


def _backward(chunk, vocab_size, saved, cotangents):
    hidden, head, targets, temperature, entropy, kept = saved
    through_entropy = not isinstance(cotangents[1], SymbolicZero)
    cotangents = [jnp.zeros_like(entropy) if isinstance(x, SymbolicZero) else x for x in cotangents]
    length = hidden.shape[-2]

    def gradients(h, z, weights, total, y, entropy, d_log_prob, d_entropy):
        product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
        rows, scale = head.astype(h.dtype), (1 / temperature)
        if through_entropy:
            p = weights / total[:, None]
            log_p = z - jnp.max(z, axis=-1, keepdims=True) - jnp.log(total)[:, None]
            from_log_prob = jnp.where(_is_target(z, y), d_log_prob[:, None], 0.0)
            from_both = p * (d_log_prob[:, None] + d_entropy[:, None] * (log_p + entropy[:, None]))
            dz = ((from_log_prob - from_both) * scale).astype(h.dtype)
            return product("nv,vd->nd", dz, rows).astype(h.dtype), product("nv,nd->vd", dz, h)
        weights, at_target = weights.astype(h.dtype), (d_log_prob * scale)[:, None]
        at_all = at_target / total[:, None]
        dh = at_target * rows[y] - at_all * product("nv,vd->nd", weights, rows)
        d_head = product("nv,nd->vd", weights, (-at_all * h).astype(h.dtype)).at[y].add(at_target * h)
        return dh.astype(h.dtype), d_head

    by_token = (targets, entropy, *cotangents)
    if kept is not None:
        dh, d_head = gradients(one_row(hidden), *kept, *(x.reshape(-1) for x in by_token))
        return dh.reshape(hidden.shape), d_head.astype(head.dtype), None, jnp.zeros_like(temperature)

    def one(d_head, xs):
        h, *of_token = one_row(xs[0]), *(x.reshape(-1) for x in xs[1:])
        z = _scaled(h, head, temperature, vocab_size)
        dh, more = gradients(h, z, *_statistics(z, of_token[0])[2:], *of_token)
        return d_head + more, dh.reshape(xs[0].shape)

    xs = (split(hidden, chunk, -2), *(split(x, chunk, -1) for x in by_token))
    d_head, d_hidden = jax.lax.scan(one, jnp.zeros(head.shape, jnp.float32), xs)
    return join(d_hidden, length, -2), d_head.astype(head.dtype), None, jnp.zeros_like(temperature)


def _rule(hidden, head, targets, temperature, chunk, vocab_size):
    return _forward(hidden.value, head.value, targets.value, temperature.value, chunk, vocab_size)


_chunked.defvjp(_rule, _backward, symbolic_zeros=True)


def _is_target(logits: Array, targets: Array) -> Array:
    return jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1) == targets[..., None]
