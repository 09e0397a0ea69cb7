"""Attention of tokens to their own past in parts, so that little is computed of what no query may see.

Of the logits of ``q`` queries and their own ``q`` keys, those above the diagonal are worth nothing. With ``n`` parts of
the queries, each of which meets the keys up to its end, ``(n + 1) / 2n`` of them are computed.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from rlagents.models.attention import Backend, Outcome, OwnTokens, Partial, Queries, Source, Window

ATTENTION_PARTS = 4
"""Leaves 5/8 of the logits; each part is compiled for itself."""


def in_causal_parts(most_parts: int, inner: Backend, *, least_positions: int = 64) -> Backend:
    """Attention that hands ``OwnTokens`` to ``inner`` part by part, in both directions; other sources as they are.

    At most ``most_parts`` parts, and as many positions in each, but ``least_positions`` at least: below, products are
    too thin. The results are those of ``inner``.
    """

    def ends(source: Source) -> list[int]:
        length = source.key.shape[3]
        parts = max(1, min(most_parts, length // least_positions)) if isinstance(source, OwnTokens) else 1
        return [length * (part + 1) // parts for part in range(parts)]

    def forward(scale: float, queries: Queries, source: Source, window: Window) -> Partial:
        if len(stops := ends(source)) == 1:
            return inner.forward(scale, queries, source, window)
        parts = [
            inner.forward(scale, Queries(*_between(queries, start, stop)), _until(source, stop), window)
            for start, stop in zip([0, *stops], stops)
        ]
        return jax.tree.map(lambda *xs: jnp.concatenate(xs, axis=3), *parts)

    def backward(
        scale: float, queries: Queries, source: Source, window: Window, outcome: Outcome
    ) -> tuple[Array, Array, Array]:
        if len(stops := ends(source)) == 1:
            return inner.backward(scale, queries, source, window, outcome)
        d_queries, d_key, d_value = [], *(jnp.zeros_like(x, jnp.float32) for x in (source.key, source.value))
        for start, stop in zip([0, *stops], stops):
            ours = Queries(*_between(queries, start, stop)), _until(source, stop)
            d_query, more_key, more_value = inner.backward(
                scale, *ours, window, Outcome(*_between(outcome, start, stop))
            )
            d_queries.append(d_query)
            d_key, d_value = d_key.at[:, :, :, :stop].add(more_key), d_value.at[:, :, :, :stop].add(more_value)
        return jnp.concatenate(d_queries, axis=3), d_key.astype(source.key.dtype), d_value.astype(source.value.dtype)

    return Backend(forward, backward)


def _between(of_query: Queries | Outcome, start: int, stop: int) -> list[Array]:
    """Leaves ``[b g h q ..]`` or, of positions, ``[b g q]``."""
    return [jax.lax.slice_in_dim(x, start, stop, axis=min(3, x.ndim - 1)) for x in of_query]


def _until(source: Source, stop: int) -> OwnTokens:
    return OwnTokens(source.key[:, :, :, :stop], source.value[:, :, :, :stop], source.position[:, :, :stop])
