"""The sampler's memory on the device, and the small arrays that the host sends with each call.

:class:`SamplerState` holds keys and values only, prefix KV once per group and member KV once per row. How much of it
counts is said by lengths, and the last token of every row is kept *un-fed*: its KV is written when something is
predicted from it. So the state never holds logits, and going back to an earlier token is a smaller length and another
last token. Both live on the host and travel with each call (:class:`Rows`): a few bytes a row, and no device work.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Int

from rlagents.models.config import DecoderConfig
from rlagents.models.decoder import KV, empty_kv
from rlagents.sharding import kv_sharding
from rlagents.types import pytree


@pytree
class SamplerState:
    """KV of ``m`` prefixes, each with room for ``max_prefix_tokens``, and of ``n`` rows, each with room for
    ``max_member_tokens``. Every call takes the buffers over and gives them back, written in place."""

    prefix: KV
    own: KV


class Window(NamedTuple):
    """How many positions of prefixes and rows a call reads: a compile-time constant, from a few buckets."""

    prefix_tokens: int
    own_tokens: int


@pytree
class Rows:
    """The rows of one call: ``d`` *different* rows out of ``n``, those with nothing to do filling it up.

    Attributes:
      index: numbers of the rows.
      length: how many of a row's own tokens have KV.
      group: the prefix slot of a row; ``m``, which is past the end, for a row that belongs to no group.
      prefix_length: of every slot.
    """

    index: Int[Array, " d"]
    length: Int[Array, " d"]
    group: Int[Array, " d"]
    prefix_length: Int[Array, " m"]

    @property
    def position(self) -> Int[Array, " d"]:
        """Position in the conversation of the next token to be fed."""
        return jnp.take(self.prefix_length, self.group, mode="clip") + self.length


def empty_state(
    config: DecoderConfig, mesh: Mesh, *, num_groups: int, max_prefix_tokens: int, num_rows: int, max_member_tokens: int
) -> SamplerState:
    """A state of zeros, made where it will live: slots and rows split over data, heads over tensor."""

    sharding = kv_sharding(mesh, config.num_kv_heads)

    def zeros(num: int, length: int) -> KV:
        shapes = jax.eval_shape(lambda: empty_kv(config, num, length))
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype, device=sharding), shapes)

    return SamplerState(zeros(num_groups, max_prefix_tokens), zeros(num_rows, max_member_tokens))


def first_tokens(kv: KV, tokens: int) -> KV:
    """The first ``tokens`` positions of every prefix or row: the part of a buffer that a call reads."""
    return jax.tree.map(lambda x: x[:, :, :, :tokens], kv)


def take_rows(own: KV, index: Int[Array, " d"], tokens: int) -> KV:
    """The first ``tokens`` positions of some rows. Where all rows are taken they must be in order.

    All of all rows is no copy. Anything else is copied once a call, so that each step reads less.
    """
    if index.shape[0] == own.key.shape[1]:
        return first_tokens(own, tokens)
    return jax.tree.map(lambda x: x.at[:, index, :, :tokens].get(unique_indices=True, mode="clip"), own)


def put_rows(own: KV, index: Int[Array, " d"], taken: KV) -> KV:
    """Write back what :func:`take_rows` took."""
    if taken.key.shape == own.key.shape:
        return taken
    if index.shape[0] == own.key.shape[1]:
        return jax.tree.map(lambda x, y: jax.lax.dynamic_update_slice(x, y, (0,) * x.ndim), own, taken)
    tokens = taken.key.shape[3]
    return jax.tree.map(lambda x, y: x.at[:, index, :, :tokens].set(y, unique_indices=True, mode="drop"), own, taken)
