"""Who draws which random number: a key for every sampled token, from what the token *is*, never from where it runs.

``key = fold_in(domain, run, step, stream, member, position)``, folded in this order into the threefry key 0. Neither
the slot, the row, the other rows of a block nor the number of devices enters, so a trajectory can be drawn again
anywhere.
"""

import enum
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, UInt


class Domain(enum.IntEnum):
    """What a draw is for; two domains never share a random number."""

    TRAIN = 0
    EVALUATION = 1
    GENERATE_SEEDED = 2
    """``Sampler.generate`` with a seed."""
    GENERATE_COUNTED = 3
    """``Sampler.generate`` without one: the call's number takes the seed's place."""


class StreamKey(NamedTuple):
    """Key material of one group, each a whole number in ``[0, 2**32)``. The member's number is folded in after it."""

    domain: int
    run: int
    """The run's seed."""
    step: int
    """The rollout batch."""
    stream: int
    """Index of the group's prompt in the prompt stream."""


def row_keys(material: UInt[Array, "d 5"]) -> Key[Array, " d"]:
    """Fold ``(domain, run, step, stream, member)`` of every row into a key; threefry, whatever JAX's default is."""

    def fold(row: UInt[Array, "5"]) -> Key[Array, ""]:
        key = jax.random.key(0, impl="threefry2x32")
        for part in range(5):
            key = jax.random.fold_in(key, row[part])
        return key

    return jax.vmap(fold)(material)


def token_keys(keys: Key[Array, " d"], position: Int[Array, " d"]) -> Key[Array, " d"]:
    """Key of the token at ``position`` (0 is the conversation's first token) of every row."""
    return jax.vmap(jax.random.fold_in)(keys, position.astype(jnp.uint32))
