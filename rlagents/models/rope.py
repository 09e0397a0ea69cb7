"""Rotary position embeddings (Su et al. 2021, arXiv:2104.09864), halves convention."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


class Rotary(NamedTuple):
    """Cosines and sines of the angles, float32."""

    cos: Float[Array, "*batch t half"]
    sin: Float[Array, "*batch t half"]


def inverse_frequencies(head_dim: int, theta: float, scaling: Callable[[np.ndarray], np.ndarray] | None) -> np.ndarray:
    """Radians per position ``theta ** (-2i / head_dim)`` of every pair, scaled: float32 ``[head_dim / 2]``."""
    plain = theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    return (plain if scaling is None else scaling(plain)).astype(np.float32)


def rotary(positions: Int[Array, "*batch t"], frequencies: np.ndarray) -> Rotary:
    """Angles of ``positions``."""
    angles = positions[..., None].astype(jnp.float32) * frequencies
    return Rotary(jnp.cos(angles), jnp.sin(angles))


def rotate(x: Float[Array, "*batch h t k"], table: Rotary) -> Float[Array, "*batch h t k"]:
    """Turn the pairs ``(x[i], x[i + head_dim / 2])`` by their angles, in float32; the dtype of ``x`` is kept."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = table.cos[..., None, :, :], table.sin[..., None, :, :]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)
