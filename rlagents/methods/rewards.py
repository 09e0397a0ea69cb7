"""Reward shapers: rewards ``[p g]`` become other rewards, before the estimator compares them."""

from dataclasses import replace

import jax.numpy as jnp

from rlagents.methods.arguments import check_arguments
from rlagents.methods.base import MethodError, Transform, fact, reward_stage
from rlagents.methods.compose import Chain, identity
from rlagents.numerics import masked_sum, safe_divide
from rlagents.types import Kind, Mean


def overlong_penalty(max_tokens: int, buffer_tokens: int) -> Transform:
    """Punish length beyond a soft limit: ``R <- R + clip((max - buffer - n) / buffer, -1, 0)``.

    ``n`` counts MODEL tokens alone; what tools wrote is not the policy's doing. No penalty up to ``max_tokens -
    buffer_tokens``, -1 from ``max_tokens`` on (DAPO, arXiv 2503.14476, eq. 13: 20480 and 4096). Reads ``rewards``,
    ``kind``; no gradient; members are treated separately. Metric: ``overlong_penalty`` (mean over valid members).

    Raises ValueError unless ``0 < buffer_tokens <= max_tokens``.

    >>> from rlagents.methods import specimen
    >>> specimen.shaped(overlong_penalty(max_tokens=4, buffer_tokens=4))  # 1 and 0 before
    [0.25, -0.75]
    """
    check_arguments(
        "overlong_penalty",
        "0 < buffer_tokens <= max_tokens, such as 20480 and 4096",
        lambda max_tokens, buffer_tokens: 0 < buffer_tokens <= max_tokens,
        max_tokens=max_tokens,
        buffer_tokens=buffer_tokens,
    )

    def credit(credit, logprobs, rewards, masks):
        length = jnp.sum(masks.kind == Kind.MODEL, axis=-1)
        penalty = jnp.clip(safe_divide(max_tokens - buffer_tokens - length, buffer_tokens), -1, 0)
        return replace(credit, rewards=credit.rewards + penalty), {"overlong_penalty": Mean.of(penalty, credit.valid)}

    return reward_stage("overlong_penalty", credit)


def format_gate(fact_name: str, otherwise: float = 0.0) -> Transform:
    """Pay only for well-formed trajectories: ``R <- R if rewards.named[fact_name] > 0 else otherwise``.

    CalibAdv, arXiv 2604.18235: ``F1 * 1[valid format]``. Reads ``rewards``, ``named``; no gradient; members are treated
    separately. Metric: ``well_formed`` (share of valid members). Raises :class:`MethodError` when traced if the
    environment gives no such fact.

    >>> from rlagents.methods import specimen
    >>> specimen.shaped(format_gate("format", otherwise=-1.0))
    [1.0, -1.0]
    """
    check_arguments("format_gate", "a number, such as 0", lambda otherwise: True, otherwise=otherwise)

    def credit(credit, logprobs, rewards, masks):
        fine = _named("format_gate", rewards, fact_name) > 0
        return replace(credit, rewards=jnp.where(fine, credit.rewards, otherwise)), {
            "well_formed": Mean.of(fine, credit.valid)
        }

    return reward_stage("format_gate", credit)


def named_reward(fact_name: str, weight: float) -> Transform:
    """Add another fact of the environment: ``R <- R + weight * rewards.named[fact_name]``.

    Reads ``rewards``, ``named``; no gradient; members are treated separately. Raises :class:`MethodError` when traced
    if the environment gives no such fact.

    >>> from rlagents.methods import specimen
    >>> specimen.shaped(named_reward("format", 0.5))
    [1.5, 0.0]
    """
    check_arguments("named_reward", "a number, such as 0.5", lambda weight: True, weight=weight)

    def credit(credit, logprobs, rewards, masks):
        return replace(credit, rewards=credit.rewards + weight * _named("named_reward", rewards, fact_name)), {}

    return reward_stage("named_reward", credit)


def turn_rewards(weight: float) -> Transform:
    """Add what each turn earned: ``R <- R + weight * sum_s turn_scores[s]``.

    A sum, so that a trajectory is not paid less for one more good turn. Reads ``rewards``, ``turn_scores``; no
    gradient; members are treated separately. Metric: ``turn_reward`` (mean over valid members of the sum, without
    weight).

    >>> from rlagents.methods import specimen
    >>> specimen.shaped(turn_rewards(1.0))  # 1 + (1 + 1), 0 + (0.75 + 0)
    [3.0, 0.75]
    """
    check_arguments("turn_rewards", "a number, such as 0.5", lambda weight: True, weight=weight)

    def credit(credit, logprobs, rewards, masks):
        earned = jnp.sum(rewards.turn_scores, axis=-1)
        return replace(credit, rewards=credit.rewards + weight * earned), {"turn_reward": Mean.of(earned, credit.valid)}

    return reward_stage("turn_rewards", credit)


def kl_in_reward(coefficient: float) -> Transform | Chain:
    """Take the distance from the reference off the reward: ``R <- R - coefficient * sum_t (old - reference)``.

    The sum over trained tokens is the k1 estimate of ``KL(old || reference)`` of the trajectory. Being credit, it has
    the right gradient in expectation, that of the KL, by the score function: unlike a k1 *penalty* (InstructGPT, arXiv
    2203.02155, section 3.5). Reads and needs ``old``, ``reference``; no gradient; members are treated separately.
    Metric: ``kl_in_reward`` (mean over valid members of the sum). A muted member pays for no token. 0 is
    ``identity()``. Raises ValueError below 0.

    >>> from rlagents.methods import specimen
    >>> half_a_nat_each = specimen.batch()[0].old - 0.5
    >>> specimen.shaped(kl_in_reward(0.1), reference=half_a_nat_each)
    [0.85, -0.15]
    """
    expected = "0 or more, such as 0.01"
    check_arguments("kl_in_reward", expected, lambda coefficient: coefficient >= 0, coefficient=coefficient)
    if coefficient == 0:
        return identity()

    def credit(credit, logprobs, rewards, masks):
        old, reference = (fact("kl_in_reward", logprobs, field) for field in ("old", "reference"))
        distance = masked_sum(old - reference, credit.mask, axis=-1)
        return replace(credit, rewards=credit.rewards - coefficient * distance), {
            "kl_in_reward": Mean.of(distance, credit.valid)
        }

    return reward_stage("kl_in_reward", credit, {"old", "reference"})


def _named(stage, rewards, fact_name):
    if fact_name not in rewards.named:
        raise MethodError(
            f"stage '{stage}' reads Rewards.named['{fact_name}'], which is not there; the environment gives"
            f" {sorted(rewards.named)}: let Outcome.named hold it, and name it in Experiment.named."
        )
    return rewards.named[fact_name]
