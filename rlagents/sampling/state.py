"""The sampler's memory on the device, and the small arrays that the host sends with each call.

:class:`SamplerState` holds keys and values only, prefix KV once per group and member KV once per row. How much of it
counts is said by lengths, and the last token of every row is kept *un-fed*: its KV is written when something is
predicted from it. So the state never holds logits, and going back to an earlier token is a smaller length and another
last token. Both live on the host and travel with each call (:class:`Rows`): a few bytes a row, and no device work.
"""

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


def take_rows(own: KV, index: Int[Array, " d"]) -> KV:
    """KV of some rows. Where all rows are taken they must be in order, and nothing is copied."""
    if index.shape[0] == own.key.shape[1]:
        return own
    return jax.tree.map(lambda x: jnp.take(x, index, axis=1, unique_indices=True, mode="clip"), own)


def put_rows(own: KV, index: Int[Array, " d"], taken: KV) -> KV:
    """Write back what :func:`take_rows` took."""
    if index.shape[0] == own.key.shape[1]:
        return taken
    return jax.tree.map(lambda x, y: x.at[:, index].set(y, unique_indices=True, mode="drop"), own, taken)
