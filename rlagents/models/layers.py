"""All layers in one scan: compile time does not grow with depth."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from rlagents.models.attention import ATTENTION, NOWHERE, Queries, Window
from rlagents.models.chunks import by_chunks, by_rows
from rlagents.models.config import DecoderConfig
from rlagents.models.modules import block, trunk
from rlagents.models.rope import Rotary, inverse_frequencies, rotary
from rlagents.sharding import keep_rows_split
from rlagents.types import Params

Gather = Callable[[Queries, Array, Array, Any, Window], tuple[Array, Any]]
"""(queries, new keys and values ``[b g c t k]``, the layer's extra, window) -> (what attention gathered, kept)."""
RematPolicy = Callable[..., bool]
"""One of ``jax.checkpoint_policies``: which values of a layer the backward pass finds saved."""
SAVE_ATTENTION: RematPolicy = jax.checkpoint_policies.save_only_these_names(ATTENTION)
"""Keeps a layer's input and what attention gathered; all else is computed again."""


def through_layers(
    config: DecoderConfig,
    params: Params,
    tokens: Int[Array, "b g t"],
    position: Int[Array, "b g t"],
    gather: Gather,
    extras: Any,
    remat_policy: RematPolicy,
    chunk_tokens: int | None = None,
) -> tuple[Float[Array, "b g t d"], Any]:
    """Final hidden states, after the final norm, and what ``gather`` kept, stacked over layers.

    ``extras`` has leading axes of layers and, where there is a bound, of ``b``; each layer's slice is handed to
    ``gather``, which keeps leaves ``[b g ..]``. ``chunk_tokens`` bounds the tokens (of a device) that pass a layer at
    once, forwards and backwards: some rows ``b g``, and where one row alone is longer, some of its positions after
    attention. None sets no bound. What a layer computes of so many tokens stays in cache, or in little memory.
    """
    root = trunk(config, params)
    table = rotary(position, inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling))
    sliding_table = _sliding_table(config, position, table)

    def layer(hidden: Array, xs: tuple) -> tuple[Array, Any]:
        weights, sliding, extra = xs
        part = block(config, weights)

        def rows(of_row: tuple[Array, Array, Rotary, Rotary], extra: Any) -> tuple[Array, Any]:
            hidden, position, here, sliding_table = of_row
            window = None
            if config.sliding_window is not None:
                window = jnp.where(sliding, config.sliding_window, NOWHERE)
                here = jax.tree.map(lambda local, other: jnp.where(sliding, local, other), sliding_table, here)
            query, key, value = part.before(hidden, here)
            heads, kept = gather(Queries(query, position), key, value, extra, window)
            # Axes change places so that chunks cut one axis of positions of both.
            by_token = jnp.swapaxes(heads, 2, 3)
            by_token = by_token.reshape(*by_token.shape[:3], by_token.shape[3] * by_token.shape[4])
            return by_chunks(part.after, (hidden, by_token), chunk_tokens), kept

        rows = jax.checkpoint(rows, policy=remat_policy, prevent_cse=False)
        of_row = (hidden, position, table, sliding_table)
        after, kept = by_rows(rows, of_row, extra, row_tokens=tokens.shape[2], chunk_tokens=chunk_tokens)
        return keep_rows_split(after), kept

    sliding = np.array(config.sliding_layers) if config.sliding_layers else np.zeros(config.num_layers, bool)
    embedded = keep_rows_split(root.embed(tokens))
    hidden, kept = jax.lax.scan(layer, embedded, (params["layers"], sliding, extras))
    return root.final_norm(hidden), kept


def _sliding_table(config: DecoderConfig, position: Array, table: Rotary) -> Rotary:
    if config.sliding_rope_theta is None:
        return table
    return rotary(position, inverse_frequencies(config.head_dim, config.sliding_rope_theta, None))
