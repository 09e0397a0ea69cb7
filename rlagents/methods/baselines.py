"""Estimators beside GRPO's: other baselines, other scales, or a return for every turn."""

from dataclasses import replace

import jax.numpy as jnp

from rlagents.methods.arguments import check_arguments, check_statistics
from rlagents.methods.base import Transform, estimator, fact
from rlagents.numerics import (
    RELATIVE_FLOOR,
    masked_center,
    masked_count,
    masked_std,
    safe_divide,
    turns_to_tokens,
)
from rlagents.types import Mean


def centered_advantage() -> Transform:
    """How much better a member did than its group, in units of reward: ``A = R - mean_g R``.

    Without the division by the std, groups that are nearly always, or never, solved weigh no more than others: Dr.
    GRPO, arXiv 2503.20783, section 3.2. Statistics over valid members; a lone member gets 0. Reads ``rewards``,
    ``valid``, ``mask``; writes ``advantages``; no gradient; groups are treated separately. Metric: ``reward_mean``.

    >>> from rlagents.methods import specimen
    >>> specimen.advantages(centered_advantage())
    [[0.5, 0.5, 0.5], [-0.5, -0.5, -0.5]]
    """

    def credit(credit, logprobs, rewards, masks):
        better = masked_center(credit.rewards, credit.valid, axis=-1)
        return _written(credit, better[..., None]), {"reward_mean": Mean.of(credit.rewards, credit.valid)}

    return estimator("centered_advantage", credit)


def leave_one_out_advantage() -> Transform:
    """How much better a member did than the mean of the *others*: ``A_i = R_i - mean_{j != i} R_j``.

    Equals ``n / (n - 1) * (R_i - mean R)`` with ``n`` valid members, and is 0 for a lone one. RLOO: Kool et al., 2019;
    Ahmadian et al., arXiv 2402.14740, eq. 6. Reads ``rewards``, ``valid``, ``mask``; writes ``advantages``; no
    gradient; groups are treated separately. Metric: ``reward_mean``.

    >>> from rlagents.methods import specimen
    >>> specimen.advantages(leave_one_out_advantage())
    [[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]]
    """

    def credit(credit, logprobs, rewards, masks):
        count = masked_count(credit.valid, axis=-1, keepdims=True)
        better = masked_center(credit.rewards, credit.valid, axis=-1) * safe_divide(count, count - 1)
        return _written(credit, better[..., None]), {"reward_mean": Mean.of(credit.rewards, credit.valid)}

    return estimator("leave_one_out_advantage", credit)


def condition_advantage(*, ddof: int, epsilon: float) -> Transform:
    """GRPO's advantage among the members of the group that were given the same reward token.

    ``A_i = (R_i - mean_c R) / (std_c R + epsilon)`` over valid members ``j`` with ``condition[j] == condition[i]``;
    exactly 0 where these have equal rewards. (RC-GRPO itself, arXiv 2602.03025, eq. 6, takes its statistics over the
    mixed group, which is what keeps them apart from 0; this is its counterpart.) Reads ``rewards``, ``valid``,
    ``mask``, ``condition``; writes ``advantages``; no gradient; groups are treated separately. Metrics:
    ``reward_mean``; ``zero_variance_conditions`` (share of valid members whose like have equal rewards).

    Raises ValueError for a ``ddof`` other than 0 or 1, or a negative ``epsilon``.

    >>> from rlagents.methods import specimen
    >>> specimen.advantages(condition_advantage(ddof=0, epsilon=0))  # each was given a token of its own
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    >>> specimen.advantages(condition_advantage(ddof=0, epsilon=0), condition=[[1, 1]])
    [[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]]
    """
    check_statistics("condition_advantage", ddof=ddof, epsilon=epsilon)

    def credit(credit, logprobs, rewards, masks):
        alike = (masks.condition[..., :, None] == masks.condition[..., None, :]) & credit.valid[..., None, :]
        others = jnp.broadcast_to(credit.rewards[..., None, :], alike.shape)
        better = jnp.diagonal(masked_center(others, alike, axis=-1), axis1=-2, axis2=-1)
        std = masked_std(others, alike, axis=-1, ddof=ddof)
        advantages = jnp.where(credit.valid & (std != 0), safe_divide(better, std + epsilon), 0)
        metrics = {
            "reward_mean": Mean.of(credit.rewards, credit.valid),
            "zero_variance_conditions": Mean.of(std == 0, credit.valid),
        }
        return _written(credit, advantages[..., None]), metrics

    return estimator("condition_advantage", credit)


def whitened_advantage(*, kl_coefficient: float, epsilon: float) -> Transform:
    """REINFORCE++: what comes from this token on, in standard deviations of the whole batch.

    ``G[t] = R - kl_coefficient * sum_{u >= t} (old[u] - reference[u])`` over trained tokens ``u``, and
    ``A = (G - mean) / (std + epsilon)``, mean and population std over all trained tokens of the *rollout batch*: 0
    where these are equal. arXiv 2501.03262, eq. 4 to 6, with discount 1. Reads ``rewards``, ``mask``, and, unless the
    coefficient is 0, needs ``old`` and ``reference``; writes ``advantages``; no gradient. Not separable: prompts are
    compared with each other, so devices exchange three sums. Metric: ``reward_mean``.

    Raises ValueError for a negative ``kl_coefficient`` or ``epsilon``.

    >>> from rlagents.methods import specimen
    >>> specimen.advantages(whitened_advantage(kl_coefficient=0, epsilon=0))
    [[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]]
    >>> half_a_nat_each = specimen.batch()[0].old - 0.5
    >>> specimen.advantages(whitened_advantage(kl_coefficient=0.5, epsilon=0), reference=half_a_nat_each)
    [[0.46, 0.93, 1.39], [-1.39, -0.93, -0.46]]
    """
    check_arguments(
        "whitened_advantage",
        "0 or more, such as 0.01",
        lambda kl_coefficient: kl_coefficient >= 0,
        kl_coefficient=kl_coefficient,
    )
    check_statistics("whitened_advantage", ddof=0, epsilon=epsilon)

    def credit(credit, logprobs, rewards, masks):
        returns = jnp.broadcast_to(credit.rewards[..., None], credit.mask.shape)
        better = masked_center(returns, credit.mask, axis=None)
        if kl_coefficient > 0:
            old, reference = (fact("whitened_advantage", logprobs, field) for field in ("old", "reference"))
            ahead = jnp.flip(jnp.cumsum(jnp.flip(jnp.where(credit.mask, old - reference, 0), -1), -1), -1)
            # Centred apart: beside a reward of 1000 a distance of 0.001 would be rounded away.
            better -= kl_coefficient * masked_center(ahead, credit.mask, axis=None)
            returns -= kl_coefficient * ahead
        scale = jnp.max(jnp.where(credit.mask, jnp.abs(returns), 0), initial=0)
        std = masked_std(better, credit.mask, axis=None, ddof=0, scale=scale)
        advantages = jnp.where(std != 0, safe_divide(better, std + epsilon), 0)
        return _written(credit, advantages), {"reward_mean": Mean.of(credit.rewards, credit.valid)}

    return estimator("whitened_advantage", credit, {"old", "reference"} if kl_coefficient > 0 else set())


def group_baseline_whitened_advantage(*, epsilon: float) -> Transform:
    """REINFORCE++-baseline: the group's mean off the reward, then standard deviations of the whole batch.

    ``A = (B - mean) / (std + epsilon)`` with ``B = R - mean_g R``, mean and population std over all trained tokens of
    the rollout batch. arXiv 2501.03262, eq. 9. Reads ``rewards``, ``valid``, ``mask``; writes ``advantages``; no
    gradient. Not separable: see :func:`whitened_advantage`. Metric: ``reward_mean``. Raises ValueError for a negative
    ``epsilon``.

    >>> from rlagents.methods import specimen
    >>> specimen.advantages(group_baseline_whitened_advantage(epsilon=0))
    [[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]]
    """
    check_statistics("group_baseline_whitened_advantage", ddof=0, epsilon=epsilon)

    def credit(credit, logprobs, rewards, masks):
        better = jnp.broadcast_to(masked_center(credit.rewards, credit.valid, axis=-1)[..., None], credit.mask.shape)
        advantages = _standardised(better, credit.mask, None, 0, epsilon)
        return _written(credit, advantages), {"reward_mean": Mean.of(credit.rewards, credit.valid)}

    return estimator("group_baseline_whitened_advantage", credit)


def turn_return_advantage(*, discount: float, ddof: int, epsilon: float) -> Transform:
    """What this turn and the later ones earn, against all turns of the group: step rewards without a critic.

    ``G[s] = sum_{u >= s} discount^(u - s) r[u]``, where ``r`` is the turn's score and, in the last turn, the reward on
    top; ``A[t] = (G[turn(t)] - mean) / (std + epsilon)``, statistics over all turns of the valid members of the group,
    0 where they are equal. In the manner of StepSearch, arXiv 2505.15107, whose step rewards go through PPO's critic
    instead. Reads ``rewards``, ``turn_scores``, ``valid``, ``mask``, ``turn``, ``num_turns``; writes ``advantages``; no
    gradient; groups are treated separately. Metrics: ``reward_mean``; ``turn_return`` (mean over turns).

    Raises ValueError for a ``discount`` outside ``[0, 1]``, a ``ddof`` other than 0 or 1, a negative ``epsilon``.

    >>> from rlagents.methods import specimen
    >>> specimen.advantages(turn_return_advantage(discount=1, ddof=0, epsilon=0))  # of returns 3, 2 and 0.75, 0
    [[1.36, 0.49, 0.49], [-0.6, -0.6, -1.25]]
    """
    check_arguments("turn_return_advantage", "0 to 1", lambda discount: 0 <= discount <= 1, discount=discount)
    check_statistics("turn_return_advantage", ddof=ddof, epsilon=epsilon)

    def credit(credit, logprobs, rewards, masks):
        turns = jnp.arange(rewards.turn_scores.shape[-1])
        last = turns == masks.num_turns[..., None] - 1
        there = (turns < masks.num_turns[..., None]) & credit.valid[..., None]
        earned = jnp.where(there, rewards.turn_scores + jnp.where(last, credit.rewards[..., None], 0), 0)
        ahead = turns[None, :] - turns[:, None]
        weight = jnp.where(ahead >= 0, discount ** jnp.maximum(ahead, 0), 0)
        returns = jnp.einsum("...u,su->...s", earned, weight.astype(earned.dtype), precision="highest")
        standard = _standardised(returns, there, (-2, -1), ddof, epsilon)
        metrics = {"reward_mean": Mean.of(credit.rewards, credit.valid), "turn_return": Mean.of(returns, there)}
        return _written(credit, turns_to_tokens(standard, masks.turn)), metrics

    return estimator("turn_return_advantage", credit)


def _standardised(x, where, axis, ddof, epsilon):
    """``(x - mean) / (std + epsilon)`` along ``axis`` where ``where`` is True; 0 where the std is."""
    std = masked_std(x, where, axis=axis, ddof=ddof, relative_floor=RELATIVE_FLOOR, keepdims=True)
    return jnp.where(std != 0, safe_divide(masked_center(x, where, axis=axis), std + epsilon), 0)


def _written(credit, advantages):
    return replace(credit, advantages=jnp.where(credit.mask, advantages, 0))
