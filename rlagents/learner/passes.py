"""How a model is run forward and backward: in whole groups, or member slice by member slice.

This is all that the learner knows of a model. Both ways give the same numbers; they differ in what is alive at once.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh
from jaxtyping import Array, Float

from rlagents import sharding
from rlagents.learner.slices import add, by_members, join_members, sum_over
from rlagents.types import Params, Sequences

Scores = tuple[Float[Array, "p g t"], Float[Array, "p g t"]]
"""Log-probability and entropy of member tokens, float32; 0 with zero gradient where there is none."""

Apply = Callable[[Params, Sequences], Scores]
"""A model, as a pure function."""

Term = Callable[[Array, Array, Any], tuple[Array, Any]]
"""``(log_prob, entropy, data) -> (loss, metrics)``, both sums over tokens; ``data`` has leaves ``[p, g, ...]``."""


Loss = Callable[..., tuple[Array, Any]]
"""``(term, *arguments, data)``: the term's sums over what a model gives for ``arguments``, differentiable in those."""


class Passes(NamedTuple):
    """A model run forward, and a sum of token terms differentiated through it."""

    scores: Apply
    gradient: Callable[[Term, Params, Sequences, Any], tuple[tuple[Array, Any], Params]]
    """``(term, params, sequences, data) -> ((loss, metrics), d loss / d params)``."""


def loss_of(scores: Callable[..., Scores]) -> Loss:
    """``term(*scores(*arguments), data)``: scores of all rows, then the loss."""

    def loss(term: Term, *arguments: Any) -> tuple[Array, Any]:
        *given, data = arguments
        return term(*scores(*given), data)

    return loss


def whole_groups(apply: Apply, loss: Loss | None = None) -> Passes:
    """Run all members of a group at once.

    ``loss(term, params, sequences, data)`` is ``loss_of(apply)`` where it is None; ``fused`` has another one.
    """
    loss_and_metrics = loss_of(apply) if loss is None else loss

    def gradient(term: Term, params: Params, sequences: Sequences, data: Any) -> tuple[tuple[Array, Any], Params]:
        return jax.value_and_grad(lambda p: loss_and_metrics(term, p, sequences, data), has_aux=True)(params)

    return Passes(apply, gradient)


def split_over(mesh: Mesh, passes: Passes) -> Passes:
    """The same with activations split over ``mesh`` along prompts."""

    def scores(params: Params, sequences: Sequences) -> Scores:
        with sharding.activations_over(mesh):
            return passes.scores(params, sequences)

    def gradient(term: Term, params: Params, sequences: Sequences, data: Any) -> tuple[tuple[Array, Any], Params]:
        with sharding.activations_over(mesh):
            return passes.gradient(term, params, sequences, data)

    return Passes(scores, gradient)


def member_slices(
    prefix_kv: Callable[[Params, Array, Array], Any],
    member_scores: Callable[[Params, Any, Sequences], Scores],
    loss: Loss | None = None,
    *,
    members: int,
) -> Passes:
    """Run ``members`` of each group at a time, where even one group is too large for memory.

    ``prefix_kv(params, prefix [p l], prefix_length [p])`` gives keys and values of the prefix, and
    ``member_scores(params, prefix_kv, sequences)`` log-probabilities and entropies of members that attend to them. The
    prefix runs forward once and backward once: with ``K`` its keys and values and ``L = sum_i L_i(params, K)`` over
    slices, ``dL/dparams = sum_i dL_i/dparams + (dK/dparams)^T sum_i dL_i/dK``. ``loss(term, params, prefix_kv,
    sequences, data)`` is ``loss_of(member_scores)`` where it is None; ``fused`` has another one.
    """
    loss_and_metrics = loss_of(member_scores) if loss is None else loss

    def scores(params: Params, sequences: Sequences) -> Scores:
        kv = prefix_kv(params, sequences.prefix, sequences.prefix_length)

        def piece(cut: tuple[Array, Array]) -> Scores:
            return member_scores(params, kv, dataclasses.replace(sequences, tokens=cut[0], length=cut[1]))

        return join_members(jax.lax.map(piece, by_members((sequences.tokens, sequences.length), members)))

    def gradient(term: Term, params: Params, sequences: Sequences, data: Any) -> tuple[tuple[Array, Any], Params]:
        kv, kv_backward = jax.vjp(lambda p: prefix_kv(p, sequences.prefix, sequences.prefix_length), params)

        def of_slice(params: Params, kv: Any, cut: tuple[Array, Array, Any]) -> tuple[Array, Any]:
            tokens, length, piece = cut
            part = dataclasses.replace(sequences, tokens=tokens, length=length)
            return loss_and_metrics(term, params, kv, part, piece)

        value, (direct, kv_cotangent) = sum_over(
            lambda cut: jax.value_and_grad(of_slice, argnums=(0, 1), has_aux=True)(params, kv, cut),
            by_members((sequences.tokens, sequences.length, data), members),
        )
        kv_cotangent = jax.tree.map(lambda cotangent, x: cotangent.astype(x.dtype), kv_cotangent, kv)
        return value, add(direct, kv_backward(kv_cotangent)[0])

    return Passes(scores, gradient)
