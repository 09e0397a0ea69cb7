"""One small stage of every role and kind, so that the laws are tried on stages the library does not have yet."""

from dataclasses import replace

import jax.numpy as jnp

from rlagents.methods import (
    Role,
    Transform,
    advantages_of,
    fact,
    filter_stage,
    penalty,
    reshaper,
    reward_stage,
    surrogate,
)
from rlagents.numerics import log_ratio, masked_count, masked_mean, safe_divide, turns_to_tokens
from rlagents.types import Mean


def drop_truncated():
    """A filter of members."""

    def credit(credit, logprobs, rewards, masks):
        keep = ~masks.truncated
        return replace(credit, valid=credit.valid & keep, mask=credit.mask & keep[..., None]), {}

    return filter_stage("drop_truncated", credit)


def mute_void_turns():
    """A filter of tokens: their member still counts in the statistics of its group."""

    def credit(credit, logprobs, rewards, masks):
        return replace(credit, mask=credit.mask & ~turns_to_tokens(rewards.turn_void, masks.turn)), {}

    return filter_stage("mute_void_turns", credit)


def format_bonus(weight):
    """A reward shaper reading a named fact."""

    def credit(credit, logprobs, rewards, masks):
        return replace(credit, rewards=credit.rewards + weight * rewards.named["format"]), {}

    return reward_stage("format_bonus", credit)


def soften_negative_turns():
    """A reshaper reading turn facts."""

    def credit(credit, logprobs, rewards, masks):
        advantages = advantages_of("soften_negative_turns", credit)
        score = turns_to_tokens(rewards.turn_scores, masks.turn)
        softened = jnp.where(advantages < 0, advantages * (1 - score), advantages)
        return replace(credit, advantages=softened), {"softened": Mean.of(advantages < 0, credit.mask)}

    return reshaper("soften_negative_turns", credit)


def importance_weights(most):
    """A reshaper that needs two facts."""

    def credit(credit, logprobs, rewards, masks):
        old = fact("importance_weights", logprobs, "old")
        rollout = fact("importance_weights", logprobs, "rollout")
        weight = jnp.minimum(jnp.exp(log_ratio(old, rollout)), most)
        return replace(credit, advantages=advantages_of("importance_weights", credit) * weight), {}

    return reshaper("importance_weights", credit, {"old", "rollout"})


def old_entropy_bonus(weight):
    """A reshaper that needs the old entropy."""

    def credit(credit, logprobs, rewards, masks):
        entropy = fact("old_entropy_bonus", logprobs, "old_entropy")
        advantages = advantages_of("old_entropy_bonus", credit) * (1 + weight * entropy)
        return replace(credit, advantages=advantages), {}

    return reshaper("old_entropy_bonus", credit, {"old_entropy"})


def plain_gradient():
    """A surrogate without a ratio."""
    return surrogate(
        "plain_gradient", lambda logprobs, credit, masks: (-logprobs.policy * advantages_of("plain", credit), {})
    )


def entropy_penalty(weight):
    """A penalty on live entropy with a measure of its own: the mean over tokens of positive advantage."""

    def loss(logprobs, credit, masks):
        return -weight * fact("entropy_penalty", logprobs, "entropy"), {}

    def measure(credit, masks):
        chosen = credit.mask & (advantages_of("entropy_penalty", credit) > 0)
        return safe_divide(chosen, masked_count(chosen, axis=None))

    return penalty("entropy_penalty", loss, measure=measure)


def adaptive_penalty(first, target):
    """A penalty with memory: its weight grows while old and reference differ by more than the target."""

    def credit(weight, credit, logprobs, rewards, masks):
        old, reference = (fact("adaptive_penalty", logprobs, field) for field in ("old", "reference"))
        distance = masked_mean(jnp.square(old - reference), credit.mask, axis=None)
        weight = jnp.where(distance > target, weight * 2, weight)
        return credit, weight, {"distance": Mean.of(distance, jnp.array(True))}

    def loss(weight, logprobs, credit, masks):
        difference = log_ratio(logprobs.policy, fact("adaptive_penalty", logprobs, "reference"))
        return weight * jnp.square(difference), {"weight": Mean.of(weight, jnp.array(True))}

    return Transform(
        name="adaptive_penalty",
        role=Role.PENALTY,
        needs=frozenset({"old", "reference"}),
        init=lambda: jnp.full((), first, jnp.result_type(float)),
        credit=credit,
        loss=loss,
    )
