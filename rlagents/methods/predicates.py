"""Which members of a group a filter means: ``(credit, rewards, masks) -> [p g]`` bool, True for those to leave out.

The same predicates serve the stages of :mod:`rlagents.methods.filters` and the choice of groups worth collecting. All
are facts (no gradient) and look at one group at a time. What they say of a member that is not valid means nothing.
A predicate's ``__name__`` names the stage and its metric.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Bool

from rlagents.methods.arguments import check_arguments
from rlagents.numerics import masked_center, masked_count, masked_mean
from rlagents.types import Credit, Masks, Rewards

Predicate = Callable[[Credit, Rewards, Masks], Bool[Array, "p g"]]


def failed_tools(credit: Credit, rewards: Rewards, masks: Masks) -> Bool[Array, "p g"]:
    """Members that called a tool at least once and succeeded never: ``sum_s calls > 0`` and ``sum_s successes == 0``.

    A member without any call is kept. TAO-RL, arXiv 2606.03762, first criterion of O_valid.

    >>> from rlagents.methods import drop, specimen
    >>> specimen.trained(drop(failed_tools))  # the second member's only call failed
    [[1, 1, 1], [0, 0, 0]]
    """
    calls, successes = jnp.sum(rewards.turn_tool_calls, -1), jnp.sum(rewards.turn_tool_successes, -1)
    return (calls > 0) & (successes == 0)


def void_turns(credit: Credit, rewards: Rewards, masks: Masks) -> Bool[Array, "p g"]:
    """Members with at least one void turn, one with neither a call nor an answer. SimpleTIR, arXiv 2509.02479.

    >>> from rlagents.methods import drop, specimen
    >>> specimen.trained(drop(void_turns), turn_void=[[[False, True], [False, False]]])
    [[0, 0, 0], [1, 1, 1]]
    """
    return jnp.any(rewards.turn_void, -1)


def truncated(credit: Credit, rewards: Rewards, masks: Masks) -> Bool[Array, "p g"]:
    """Members cut off by a limit: overlong filtering of DAPO, arXiv 2503.14476, section 3.4.

    >>> from rlagents.methods import drop, specimen
    >>> specimen.trained(drop(truncated), truncated=[[False, True]])
    [[1, 1, 1], [0, 0, 0]]
    """
    return masks.truncated


def uniform_groups(credit: Credit, rewards: Rewards, masks: Masks) -> Bool[Array, "p g"]:
    """All members of a group whose valid members have one and the same reward (to 1e-6 of the largest, in magnitude).

    DAPO, arXiv 2503.14476, section 3.2, where rewards are binary; a group of one valid member is uniform.

    >>> from rlagents.methods import drop, specimen
    >>> specimen.trained(drop(uniform_groups), outcome=[[1.0, 1.0]])
    [[0, 0, 0], [0, 0, 0]]
    """
    largest = jnp.max(jnp.where(credit.valid, jnp.abs(credit.rewards), 0), axis=-1, keepdims=True)
    # Not "greater": a reward that is NaN is to be seen in the loss, not to make its group uniform.
    apart = ~(jnp.abs(masked_center(credit.rewards, credit.valid, axis=-1)) <= 1e-6 * largest)
    return jnp.broadcast_to(~jnp.any(apart, -1, keepdims=True), credit.valid.shape)


def pass_rate_outside(low: float, high: float) -> Predicate:
    """All members of a group whose mean reward is not strictly between ``low`` and ``high``.

    TAO-RL, arXiv 2606.03762, second criterion (0 and 1); SimpleTIR's released code 0.1 and 0.9. Rewards are taken as
    success in ``[0, 1]``. Raises ValueError unless ``low < high``.

    >>> from rlagents.methods import drop, specimen
    >>> specimen.trained(drop(pass_rate_outside(0.6, 0.9)))  # one of two succeeds
    [[0, 0, 0], [0, 0, 0]]
    """
    check_arguments(
        "pass_rate_outside", "low < high, such as 0 and 1", lambda low, high: low < high, low=low, high=high
    )

    def predicate(credit: Credit, rewards: Rewards, masks: Masks) -> Bool[Array, "p g"]:
        rate = masked_mean(credit.rewards, credit.valid, axis=-1, keepdims=True)
        return jnp.broadcast_to((rate <= low) | (rate >= high), credit.valid.shape)

    predicate.__name__ = "pass_rate_outside"
    return predicate


def few_finished(minimum: int) -> Predicate:
    """All members of a group with fewer than ``minimum`` valid members that were not truncated.

    SimpleTIR's released code asks for 4. Raises ValueError below 1.

    >>> from rlagents.methods import drop, specimen
    >>> specimen.trained(drop(few_finished(2)), truncated=[[False, True]])
    [[0, 0, 0], [0, 0, 0]]
    """
    check_arguments("few_finished", "1 finished member or more", lambda minimum: minimum >= 1, minimum=minimum)

    def predicate(credit: Credit, rewards: Rewards, masks: Masks) -> Bool[Array, "p g"]:
        finished = masked_count(credit.valid & ~masks.truncated, axis=-1, keepdims=True)
        return jnp.broadcast_to(finished < minimum, credit.valid.shape)

    predicate.__name__ = "few_finished"
    return predicate
