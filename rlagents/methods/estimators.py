"""Estimators: rewards ``[p g]`` become advantages ``[p g t]``."""

from dataclasses import replace

import jax.numpy as jnp

from rlagents.methods.arguments import check_arguments, check_statistics
from rlagents.methods.base import Transform, estimator
from rlagents.numerics import RELATIVE_FLOOR, masked_center, masked_std, safe_divide
from rlagents.types import Mean


def group_advantage(*, ddof: int, epsilon: float, relative_floor: float = RELATIVE_FLOOR) -> Transform:
    """How much better a member did than its group, in standard deviations.

    ``A[p, g, t] = (R[p, g] - mean_g R) / (std_g R + epsilon)`` on trained tokens, 0 elsewhere; statistics over the
    valid members of the group, ``std`` with ``ddof`` (0: population, as RC-GRPO, arXiv 2602.03025, eq. 6; 1: sample, as
    CalibAdv, arXiv 2604.18235). GRPO: DeepSeekMath, arXiv 2402.03300, section 4.1.2.

    A group whose rewards are equal (one valid member, or a std of at most ``relative_floor`` of the largest ``|R|``,
    see :func:`rlagents.numerics.masked_std`) has nothing to compare: its advantages are exactly 0. A valid member's
    reward that is NaN or infinite makes its whole group's NaN.

    Reads ``rewards``, ``valid``, ``mask``; writes ``advantages``; no gradient; row-separable over ``p``. Metrics:
    ``reward_mean`` over valid members; over groups with a valid member, ``reward_std`` (mean), ``zero_variance_groups``
    (share) and ``advantage_spread`` (mean of largest less smallest advantage).

    Raises ValueError for a ``ddof`` other than 0 or 1, or a negative ``epsilon`` or ``relative_floor``.

    >>> from rlagents.methods import specimen
    >>> specimen.advantages(group_advantage(ddof=0, epsilon=0))
    [[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]]
    >>> specimen.advantages(group_advantage(ddof=1, epsilon=0))
    [[0.71, 0.71, 0.71], [-0.71, -0.71, -0.71]]
    """
    check_statistics("group_advantage", ddof=ddof, epsilon=epsilon)
    check_arguments(
        "group_advantage",
        "0 or more, a share of max |R|",
        lambda relative_floor: relative_floor >= 0,
        relative_floor=relative_floor,
    )

    def credit(credit, logprobs, rewards, masks):
        valid = credit.valid
        better = masked_center(credit.rewards, valid, axis=-1)
        # NaN for what is no number.
        std = masked_std(credit.rewards, valid, axis=-1, ddof=ddof, relative_floor=relative_floor, keepdims=True)
        advantages = jnp.where(std == 0, 0, safe_divide(better, std + epsilon))
        groups = jnp.any(valid, axis=-1)
        best = jnp.max(jnp.where(valid, advantages, -jnp.inf), axis=-1)
        worst = jnp.min(jnp.where(valid, advantages, jnp.inf), axis=-1)
        metrics = {
            "reward_mean": Mean.of(credit.rewards, valid),
            "reward_std": Mean.of(std[..., 0], groups),
            "zero_variance_groups": Mean.of(std[..., 0] == 0, groups),
            "advantage_spread": Mean.of(best - worst, groups),
        }
        return replace(credit, advantages=jnp.where(credit.mask, advantages[..., None], 0)), metrics

    return estimator("group_advantage", credit)
