"""Reshapers that calibrate advantages of long tool-using trajectories: CalibAdv, arXiv 2604.18235."""

from dataclasses import replace

import jax.numpy as jnp

from rlagents.methods.base import Transform, advantages_of, reshaper
from rlagents.numerics import masked_sum, safe_divide, turns_to_tokens
from rlagents.types import Mean


def soften_negative_turns() -> Transform:
    """Spare the good turns of a bad trajectory: ``A[t] <- A[t] * (1 - c[turn(t)])`` where ``A[t] < 0``.

    ``c`` is the turn's score in ``[0, 1]``, such as the share of its documents that successful members of the group
    found; a turn with nothing to score has 0 and keeps its penalty. Positive advantages stay. Soft penalisation of the
    paper. Reads ``advantages``, ``turn_scores``, ``turn``; no gradient; members are treated separately. Metric:
    ``softened`` (mean score over tokens of negative advantage).
    """

    def credit(credit, logprobs, rewards, masks):
        advantages = advantages_of("soften_negative_turns", credit)
        score = turns_to_tokens(rewards.turn_scores, masks.turn)
        softened = jnp.where(advantages < 0, advantages * (1 - score), advantages)
        return replace(credit, advantages=softened), {"softened": Mean.of(score, credit.mask & (advantages < 0))}

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
    """
    if not ratio > 0:
        raise ValueError(f"rebalance_answers(ratio={ratio}): expected more than 0, such as 1.0.")

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
