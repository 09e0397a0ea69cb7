"""Penalties on likelihood displacement: what was right should not become less likely (LLD, arXiv 2512.04220).

Of the tokens worth preserving, those whose likelihood has fallen below ``old`` pay for the fall. All forms carry their
own measure, one over the number of tokens worth preserving in the update batch; they differ in their gate.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlagents.methods.arguments import check_arguments, check_function
from rlagents.methods.base import Transform, advantages_of, fact, penalty
from rlagents.numerics import masked_count, masked_sum, safe_divide, tokens_to_turns, turns_to_tokens
from rlagents.types import Mean

Worth = Callable[[Float[Array, "p g t"]], Bool[Array, "p g t"]]


def non_negative(advantages: Float[Array, "p g t"]) -> Bool[Array, "p g t"]:
    """Tokens of no negative advantage (the paper)."""
    return advantages >= 0


def positive(advantages: Float[Array, "p g t"]) -> Bool[Array, "p g t"]:
    """Tokens of positive advantage (CalibAdv's baseline)."""
    return advantages > 0


def likelihood_drop_penalty(coefficient: float, *, worth: Worth = non_negative) -> Transform:
    """``coefficient * sum_t max(0, old - policy) / n`` over the ``n`` trained tokens worth preserving; the token gate.

    Gradient: ``-coefficient / n`` by ``policy`` where the likelihood has fallen, else 0 (so at ``policy == old``).
    Reads ``policy``, ``old``, ``advantages``. Metric: ``likelihood_drop`` (mean fall over those tokens, nats). CalibAdv
    uses 0.1. Raises ValueError below 0.

    >>> from rlagents.methods import specimen
    >>> specimen.terms(likelihood_drop_penalty(1.0), outcome=[[0.0, 1.0]])  # the second is right, and fell by log 2
    [[0.0, 0.0, 0.0], [0.0, 0.69, 0.0]]
    """
    return _penalty("likelihood_drop_penalty", coefficient, worth, lambda fall, where, masks: 1.0)


def likelihood_drop_penalty_by_turn(coefficient: float, *, worth: Worth = non_negative) -> Transform:
    """:func:`likelihood_drop_penalty`, only in turns that have become less likely as a whole; the action gate.

    The gate is ``sum_t (old - policy) > 0`` over the turn's tokens worth preserving, rises and falls alike; the paper's
    better one. It carries no gradient.

    >>> from rlagents.methods import specimen
    >>> rose = specimen.batch()[0].policy.at[0, 1, 0].add(1.0)  # in the same turn, by more
    >>> specimen.terms(likelihood_drop_penalty_by_turn(1.0), outcome=[[0.0, 1.0]], policy=rose)
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """

    def gate(fall, where, masks):
        most_turns = masks.turn.shape[-1]  # every turn has a token
        return turns_to_tokens(tokens_to_turns(fall, masks.turn, most_turns, where=where), masks.turn) > 0

    return _penalty("likelihood_drop_penalty_by_turn", coefficient, worth, gate)


def likelihood_drop_penalty_by_trajectory(coefficient: float, *, worth: Worth = non_negative) -> Transform:
    """:func:`likelihood_drop_penalty`, only where the trajectory as a whole has become less likely; the response gate.

    The gate is ``sum_t (old - policy) > 0`` over the trajectory's tokens worth preserving, rises and falls alike. It
    carries no gradient.

    >>> from rlagents.methods import specimen
    >>> rose = specimen.batch()[0].policy.at[0, 1, 2].add(0.5)  # in another turn, by less
    >>> specimen.terms(likelihood_drop_penalty_by_trajectory(1.0), outcome=[[0.0, 1.0]], policy=rose)
    [[0.0, 0.0, 0.0], [0.0, 0.69, 0.0]]
    """

    def gate(fall, where, masks):
        return masked_sum(fall, where, axis=-1, keepdims=True) > 0

    return _penalty("likelihood_drop_penalty_by_trajectory", coefficient, worth, gate)


def _penalty(name, coefficient, worth, gate):
    check_function(name, "worth", worth, "non_negative or positive")
    check_arguments(name, "0 or more, such as 0.1", lambda coefficient: coefficient >= 0, coefficient=coefficient)

    def chosen(credit):
        return credit.mask & worth(advantages_of(name, credit))

    def loss(logprobs, credit, masks):
        where = chosen(credit)
        fall = fact(name, logprobs, "old") - logprobs.policy
        # relu, not maximum: at policy == old its gradient is 0.
        paid = jnp.where(where, jax.nn.relu(fall) * gate(fall, where, masks), 0)
        return coefficient * paid, {"likelihood_drop": Mean.of(paid, where)}

    def measure(credit, masks):
        where = chosen(credit)
        return safe_divide(where, masked_count(where, axis=None))

    return penalty(name, loss, measure=measure)
