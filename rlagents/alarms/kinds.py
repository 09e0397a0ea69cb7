"""The alarms there are: what each looks at, and what it says."""

import math
import operator
import statistics
from collections.abc import Sequence

from rlagents.alarms.alarm import Alarm, Values

_OF_TRAJECTORIES = ("reward", "turns")
"""Means over valid trajectories: NaN where there was none, which is told by ``tool_faults``."""
_REMEMBERED = 50
_ENOUGH = 5
"""Gradients remembered, and those it takes for a median to mean something."""


def non_finite() -> Alarm:
    """A metric that is not finite: a loss, a gradient norm, a reward."""

    def says(values: Values, count: float, threshold: float) -> str:
        names = _not_finite(values)
        return f"{', '.join(f'{name} is {values[name]}' for name in names[:3])}{', ...' * (len(names) > 3)}"

    return Alarm("non_finite", lambda values: len(_not_finite(values)), lambda _: 0, says)


def ratio_exploded(most: float) -> Alarm:
    """A trained token's probability has grown more than ``most`` times within the updates of one rollout batch."""

    def says(values: Values, ratio: float, threshold: float) -> str:
        return f"a token became {ratio:.3g} times as likely within a step's updates, more than {threshold:.3g} times"

    return Alarm("ratio_exploded", lambda values: values.get("policy_ratio_max"), lambda _: most, says)


def kl_exploded(most: float) -> Alarm:
    """The policy is further than ``most`` nats a token from what sampled: it drifts, or the two disagree."""

    def says(values: Values, kl: float, threshold: float) -> str:
        return f"the policy is {kl:.3g} nats a token from what was sampled, more than {threshold:.3g}"

    return Alarm("kl_exploded", _of_trained("rollout_kl"), lambda _: most, says)


def gradient_norm_exploded(most: float, growth: float, floor: float) -> Alarm:
    """The gradient's norm before clipping is above ``most``, or ``growth`` times its running median and ``floor``.

    The median is that of the last 50 steps with a gradient, 5 at least. Below ``floor`` no norm is an explosion: where
    rewards are often equal, the median is next to nothing.
    """

    def limit(earlier: Sequence[float]) -> float:
        relative = growth * statistics.median(earlier) if len(earlier) >= _ENOUGH else math.inf
        return min(most, max(floor, relative))

    def says(values: Values, norm: float, threshold: float) -> str:
        return f"the gradient's norm is {norm:.3g}, more than {threshold:.3g}"

    return Alarm(
        "gradient_norm_exploded", lambda values: values.get("gradient_norm"), limit, says, remembers=_REMEMBERED
    )


def entropy_collapsed(least: float, patience: int) -> Alarm:
    """Trained tokens have less than ``least`` nats of entropy on average: little is left to explore."""

    def says(values: Values, entropy: float, threshold: float) -> str:
        return f"the entropy is {entropy:.3g} nats a token, less than {threshold:.3g}, for {patience} steps"

    return Alarm("entropy_collapsed", _of_trained("entropy"), lambda _: least, says, patience, operator.lt)


def rewards_all_equal(patience: int) -> Alarm:
    """In no group do rewards differ, for ``patience`` steps: there is nothing to learn from."""

    def says(values: Values, share: float, threshold: float) -> str:
        return f"in every group all rewards are equal, for {patience} steps; the mean is {values['reward']:.3g}"

    return Alarm(
        "rewards_all_equal", lambda values: values.get("uniform_groups"), lambda _: 1.0, says, patience, operator.ge
    )


def format_collapsed(most: float, patience: int) -> Alarm:
    """More than a share ``most`` of model turns has neither a call that can be read nor an answer, or was cut."""

    def says(values: Values, share: float, threshold: float) -> str:
        return f"{share:.0%} of model turns are garbled or cut, more than {threshold:.0%}, for {patience} steps"

    return Alarm("format_collapsed", lambda values: values.get("garbled_turns"), lambda _: most, says, patience)


def tool_faults(most: float, patience: int) -> Alarm:
    """More than a share ``most`` of trajectories is lost to faults of the infrastructure."""

    def measure(values: Values) -> float | None:
        all_of_them = values.get("rollout/trajectories", 0)
        return values["rollout/trajectories_lost"] / all_of_them if all_of_them else None

    def says(values: Values, share: float, threshold: float) -> str:
        return f"{share:.0%} of trajectories are lost to faults, more than {threshold:.0%}, for {patience} steps"

    return Alarm("tool_faults", measure, lambda _: most, says, patience)


def _of_trained(name: str):
    """The metric ``name``, a mean over trained tokens; None where there were none, whose mean is 0."""
    return lambda values: values.get(name) if values.get("tokens_trained", 0) else None


def _not_finite(values: Values) -> list[str]:
    lost = [name for name in _OF_TRAJECTORIES if math.isnan(values.get(name, 0))]
    return [name for name, value in values.items() if not math.isfinite(value) and name not in lost]
