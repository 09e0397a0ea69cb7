"""Attention over several sources of keys and values with one softmax.

A query may look at a prefix that it shares with other members of its group and at keys of its own. Each source is
attended to where it lies and gives a partial result; partials are joined as if their keys had been concatenated:

    m = max_i m_i,   out = sum_i exp(m_i - m) numerator_i / sum_i exp(m_i - m) denominator_i

The backward pass goes source by source too. With the log-normalizer ``L`` of the joint softmax, ``p = exp(s - L)`` and
``delta = sum(d_out * out)``, the logits' gradient is ``p (d_out . v - delta)`` (Dao et al. 2022, arXiv:2205.14135).

A query sees a key when ``key position <= query position`` and ``query position - key position < window``. That one rule
covers causality, sliding windows and padding, whose position is ``NOWHERE``.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

NOWHERE = jnp.iinfo(jnp.int32).max
"""Position of a key that no query may see."""
ATTENTION = "attention"
"""Name under which a rematerialisation policy finds what the backward pass of attention needs."""

Window = int | Int[Array, ""] | None


class Queries(NamedTuple):
    """Rotated queries and their absolute positions, ``b`` batches of ``g`` members."""

    query: Float[Array, "b g h q k"]
    position: Int[Array, "b g q"]


class Source(NamedTuple):
    """Rotated keys, values and the keys' absolute positions.

    ``x`` is ``g``, or 1 where all members share the source; ``h`` is a multiple of the key-value heads ``c``.
    """

    key: Float[Array, "b x c s k"]
    value: Float[Array, "b x c s k"]
    position: Int[Array, "b x s"]


class OwnTokens(Source):
    """Keys and values of the queries' own tokens, one to one: no query sees a key that comes after its own."""


class Partial(NamedTuple):
    """Softmax attention over one source before the division, float32."""

    numerator: Float[Array, "b g h q k"]
    maximum: Float[Array, "b g h q"]
    denominator: Float[Array, "b g h q"]


class Outcome(NamedTuple):
    """What the backward pass of one source needs to know of the joint softmax."""

    log_normalizer: Float[Array, "b g h q"]
    d_out: Float[Array, "b g h q k"]
    delta: Float[Array, "b g h q"]


class Backend(NamedTuple):
    """One way to compute attention to one source."""

    forward: Callable[[float, Queries, Source, Window], Partial]
    backward: Callable[[float, Queries, Source, Window, Outcome], tuple[Array, Array, Array]]
    """Gradients of queries, keys and values, in their dtypes."""


def merge(partials: Sequence[Partial]) -> tuple[Float[Array, "b g h q k"], Float[Array, "b g h q"]]:
    """The softmax average over all sources and the log-normalizer, float32. Every query must see some key."""
    maximum = functools.reduce(jnp.maximum, [partial.maximum for partial in partials])
    weights = [jnp.exp(partial.maximum - maximum) for partial in partials]
    numerators = [weight[..., None] * partial.numerator for weight, partial in zip(weights, partials)]
    denominators = [weight * partial.denominator for weight, partial in zip(weights, partials)]
    denominator = functools.reduce(jnp.add, denominators)
    return functools.reduce(jnp.add, numerators) / denominator[..., None], maximum + jnp.log(denominator)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def attend(
    backend: Backend, scale: float, queries: Queries, sources: tuple[Source, ...], window: Window
) -> Float[Array, "b g h q k"]:
    """Softmax average of the sources' values with logits ``scale * query . key``, in the dtype of the queries.

    Softmax statistics are float32. Carries gradient to queries, keys and values.
    """
    return _attend_forward(backend, scale, queries, sources, window)[0]


def _attend_forward(backend: Backend, scale: float, queries: Queries, sources: tuple[Source, ...], window: Window):
    out, log_normalizer = merge([backend.forward(scale, queries, source, window) for source in sources])
    out = checkpoint_name(out.astype(queries.query.dtype), ATTENTION)
    log_normalizer = checkpoint_name(log_normalizer, ATTENTION)
    return out, (queries, sources, window, out, log_normalizer)


def _attend_backward(backend: Backend, scale: float, saved: tuple, d_out: Array):
    queries, sources, window, out, log_normalizer = saved
    delta = jnp.sum(d_out.astype(jnp.float32) * out.astype(jnp.float32), axis=-1)
    outcome = Outcome(log_normalizer, d_out, delta)
    gradients = [backend.backward(scale, queries, source, window, outcome) for source in sources]
    d_query = functools.reduce(jnp.add, [d_query for d_query, _, _ in gradients])
    d_sources = tuple(type(source)(*d_source, None) for source, (_, *d_source) in zip(sources, gradients))  # pyright: ignore[reportArgumentType]
    return Queries(d_query, None), d_sources, None  # pyright: ignore[reportArgumentType]


attend.defvjp(_attend_forward, _attend_backward)
