"""Reshapers that calibrate advantages of long tool-using trajectories: CalibAdv, arXiv 2604.18235."""

from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlagents.methods.arguments import check_arguments, check_function
from rlagents.methods.base import Transform, advantages_of, reshaper
from rlagents.numerics import masked_sum, safe_divide, turns_to_tokens
from rlagents.types import Mean

Softening = Callable[[Float[Array, "p g t"], Float[Array, "p g t"], Float[Array, "p 1 1"]], Float[Array, "p g t"]]
"""``(A, c, best) -> A``: what becomes of a negative advantage in a turn of score ``c``, ``best`` being its group's."""


def proportionally(advantages, score, best):
    """``A (1 - c)``: the paper's."""
    return advantages * (1 - score)


def wholly_from(score_threshold: float) -> Softening:
    """0 where ``c >= score_threshold``, else ``A``: the "aggressive" choice of the released code, there with 1/3."""
    expected = "a score, such as 1 / 3"
    check_arguments("wholly_from", expected, lambda score_threshold: True, score_threshold=score_threshold)

    def spare(advantages, score, best):
        return jnp.where(score >= score_threshold, 0, advantages)

    return spare


def towards_the_best(advantages, score, best):
    """``A (1 - c) + best c``, between ``A`` and the group's largest advantage: another choice of the released code."""
    return advantages * (1 - score) + best * score


def soften_negative_turns(spare: Softening = proportionally) -> Transform:
    """Spare the good turns of a bad trajectory: ``A[t] <- spare(A[t], c[turn(t)], best)`` where ``A[t] < 0``.

    ``c`` is the turn's score in ``[0, 1]``, such as the share of its documents that successful members of the group
    found, and is taken as 0 below and as 1 above; a turn with nothing to score has 0 and keeps its penalty. ``spare``
    is ``A (1 - c)`` in the paper (soft penalisation of intermediate steps); ``best`` is the largest advantage of a
    trained token of the group. Positive advantages stay, and so do those of the last turn, the answer, whatever its
    score. Reads ``advantages``, ``mask``, ``turn_scores``, ``turn``, ``num_turns``; no gradient; groups are treated
    separately. Metric: ``softened`` (mean score over tokens of negative advantage before the answer).

    >>> from rlagents.methods import specimen
    >>> specimen.advantages(soften_negative_turns())  # 1 and -1 before; the second's first turn has score 0.75
    [[1.0, 1.0, 1.0], [-0.25, -0.25, -1.0]]
    >>> specimen.advantages(soften_negative_turns(wholly_from(1 / 3)))
    [[1.0, 1.0, 1.0], [0.0, 0.0, -1.0]]
    >>> specimen.advantages(soften_negative_turns(towards_the_best))
    [[1.0, 1.0, 1.0], [0.5, 0.5, -1.0]]
    """
    check_function(
        "soften_negative_turns", "spare", spare, "proportionally, wholly_from(threshold) or towards_the_best"
    )

    def credit(credit, logprobs, rewards, masks):
        advantages = advantages_of("soften_negative_turns", credit)
        score = turns_to_tokens(jnp.clip(rewards.turn_scores, 0, 1), masks.turn)
        best = jnp.max(jnp.where(credit.mask, advantages, -jnp.inf), axis=(-2, -1), keepdims=True)
        best = jnp.where(jnp.isneginf(best), 0, best)
        bad = (advantages < 0) & (masks.turn < masks.num_turns[..., None] - 1)
        softened = jnp.where(bad, spare(advantages, score, best), advantages)
        return replace(credit, advantages=softened), {"softened": Mean.of(score, credit.mask & bad)}

    return reshaper("soften_negative_turns", credit)


def rebalance_answers(ratio: float) -> Transform:
    """Let praise and blame of a group's answers weigh alike: positive answer advantages times ``ratio * |A^-| / A^+``.

    ``A^+`` and ``A^-`` are the sums of the positive and of the negative advantages over all *answer* tokens of the
    group, those of each member's last turn; afterwards ``sum(positive) = ratio * |sum(negative)|``. Where a group's
    answers have only one sign, or none, there is nothing to balance and all their advantages become 0. Negative ones,
    and those of other turns, stay. Rebalancing of the paper, whose lambda is ``ratio`` (1.0).

    Reads ``advantages``, ``mask``, ``turn``, ``num_turns``; no gradient; groups are treated separately. Metrics, over
    groups with answer tokens: ``answer_balance`` (mean factor), ``answers_of_one_sign`` (share).

    Raises ValueError unless ``ratio > 0``.

    >>> from rlagents.methods import specimen
    >>> specimen.advantages(rebalance_answers(1.0))  # two answer tokens praised, one blamed
    [[1.0, 0.5, 0.5], [-1.0, -1.0, -1.0]]
    """
    check_arguments("rebalance_answers", "more than 0, such as 1.0", lambda ratio: ratio > 0, ratio=ratio)

    def credit(credit, logprobs, rewards, masks):
        advantages = advantages_of("rebalance_answers", credit)
        answer = credit.mask & (masks.turn == masks.num_turns[..., None] - 1)
        positive = masked_sum(advantages, answer & (advantages > 0), axis=(-2, -1), keepdims=True)
        negative = -masked_sum(advantages, answer & (advantages < 0), axis=(-2, -1), keepdims=True)
        both = (positive > 0) & (negative > 0)
        factor = jnp.where(both, ratio * safe_divide(negative, positive), 0)
        balanced = jnp.where(advantages > 0, advantages * factor, jnp.where(both, advantages, 0))
        groups = jnp.any(answer, axis=(-2, -1))
        metrics = {
            "answer_balance": Mean.of(factor[..., 0, 0], groups),
            "answers_of_one_sign": Mean.of(~both[..., 0, 0], groups),
        }
        return replace(credit, advantages=jnp.where(answer, balanced, advantages)), metrics

    return reshaper("rebalance_answers", credit)
