"""Attention of a decode step: so few queries meet each key that the keys stand on the left of the product."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rlagents.models.dense import dense_with


def _keys_on_the_left(
    scale: float, query: Float[Array, "b x c n k"], key: Float[Array, "b x c s k"]
) -> Float[Array, "b x c n s"]:
    if key.shape[1] != 1:
        raise ValueError(f"{key.shape[1]} sources a batch; the members of a batch must share one")
    query = jnp.swapaxes(query[:, 0] * jnp.asarray(scale, query.dtype), 2, 3)
    logits = jnp.einsum("bcsk,bckn->bcsn", key[:, 0], query, preferred_element_type=jnp.float32)
    # Else XLA turns the product round, and on CPUs copies the keys, transposed, instead of a few logits.
    return jnp.swapaxes(jax.lax.optimization_barrier(logits), 2, 3)[:, None]


few_queries = dense_with(_keys_on_the_left)
"""Equals ``xla``. With 1 to 16 queries a key-value head and some hundred keys, it takes half the time on CPUs."""
