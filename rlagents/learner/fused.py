"""Head and loss together, a few rows at a time: what the head computes forwards is still there backwards.

A loss of log-probabilities needs the head's logits twice, and they are too many to keep: run apart from the loss, the
head computes them again. But rows of a batch are separable (a loss is a sum over them), so that for a few rows at a
time the logits can be computed, the loss taken and its gradient sent back through the head, before the next rows come:
three products with the head instead of four, wherever the head keeps the logits of a whole row.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jaxtyping import Array, Float

from rlagents.learner.passes import Loss, Scores, Term
from rlagents.learner.slices import add, zeros_like_sum
from rlagents.row_chunks import RowChunks
from rlagents.types import Sequences

Body = Callable[..., tuple[Float[Array, "p g t d"], Float[Array, "v d"]]]
"""``(*arguments, sequences) -> (hidden states, head)``."""

HeadScores = Callable[[Float[Array, "p g t d"], Float[Array, "v d"], Sequences], Scores]
"""``(hidden, head, sequences) -> (log-probabilities, entropies)``, row by row; reads members' tokens and lengths."""


def fused_loss(body: Body, scores: HeadScores, *, chunk_tokens: int) -> Loss:
    """The sum of a term over ``scores(*body(*arguments, sequences), sequences)``.

    Whole rows of about ``chunk_tokens`` tokens (of a device) pass ``scores`` and the term at once, at least one. The
    loss and its gradient are those of all at once. Differentiable in ``arguments``; the metrics carry no gradient.
    """

    def loss(term: Term, *arguments: Any) -> tuple[Array, Any]:
        *given, sequences, data = arguments
        return _summed(term, scores, chunk_tokens, *body(*given, sequences), sequences, data)

    return loss


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _summed(
    term: Term, scores: HeadScores, chunk_tokens: int, hidden: Array, head: Array, sequences: Sequences, data: Any
) -> tuple[Array, Any]:
    del chunk_tokens  # a matter of the gradient
    return term(*scores(hidden, head, sequences), data)


def _with_gradient(
    term: Term, scores: HeadScores, chunk_tokens: int, hidden: Array, head: Array, sequences: Sequences, data: Any
) -> tuple[tuple[Array, Any], tuple[Array, Array]]:
    prompts, members, length = sequences.tokens.shape
    # The first token of a row has no log-probability.
    chunks = RowChunks.of(prompts, members, row_tokens=length - 1, chunk_tokens=chunk_tokens)

    def of_rows(piece: tuple[Array, Array, Array, Any]) -> tuple[tuple[Array, Any], tuple[Array, Array]]:
        hidden, tokens, length, data = piece
        some = dataclasses.replace(sequences, tokens=tokens, length=length)

        def loss(hidden: Array, head: Array) -> tuple[Array, Any]:
            return term(*scores(hidden, head, some), data)

        return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(hidden, head)

    def add_rows(total: Any, piece: Any) -> tuple[Any, Array]:
        value, (d_hidden, d_head) = of_rows(piece)
        return add(total, (value, d_head)), d_hidden

    def add_prompts(total: Any, piece: Any) -> tuple[Any, Array]:
        total, d_hidden = jax.lax.scan(add_rows, total, jax.tree.map(chunks.cut_members, piece))
        return total, chunks.join_members(d_hidden)

    rows = (hidden, sequences.tokens, sequences.length, data)
    value, (_, d_head) = zeros_like_sum(of_rows, rows)
    pieces = jax.tree.map(chunks.cut_prompts, rows)
    (value, d_head), d_hidden = jax.lax.scan(add_prompts, (value, d_head), pieces)
    return value, (chunks.join_prompts(d_hidden), d_head.astype(head.dtype))


def _scaled(
    term: Term, scores: HeadScores, chunk_tokens: int, gradient: tuple[Array, Array], cotangent: tuple[Array, Any]
) -> tuple[Array, Array, None, None]:
    del term, scores, chunk_tokens
    d_hidden, d_head = (cotangent[0].astype(x.dtype) * x for x in gradient)
    return d_hidden, d_head, None, None


_summed.defvjp(_with_gradient, _scaled)
