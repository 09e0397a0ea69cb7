"""All alarms of a run, step after step: which are raised, which are on, and which of them stop the run."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlagents.alarms import kinds
from rlagents.alarms.alarm import Alarm, Standing, Values, look
from rlagents.argument_checks import check_above, check_number, check_whole, is_number

ALARM_NAMES = (
    "non_finite",
    "ratio_exploded",
    "kl_exploded",
    "gradient_norm_exploded",
    "entropy_collapsed",
    "rewards_all_equal",
    "format_collapsed",
    "tool_faults",
)
"""In the order in which they are looked at."""


class AlarmError(RuntimeError):
    """An alarm that the run is to stop for was raised."""


@dataclass(frozen=True)
class Raised:
    """An alarm that went on: at which step, with what number beyond which bound, and what that means."""

    step: int
    alarm: str
    value: float
    threshold: float
    message: str

    def __str__(self) -> str:
        return f"alarm {self.alarm} at step {self.step}: {self.message}"


class Watch:
    """Holds what the alarms of a run remember. ``stop`` names those that stop it."""

    def __init__(self, alarms: Sequence[Alarm], stop: Iterable[str] = ()):
        self._alarms, self._stop = tuple(alarms), frozenset(stop)
        self._standings = {alarm.name: Standing() for alarm in self._alarms}
        self.on: tuple[str, ...] = ()
        """Names of the alarms that the newest step left on."""

    def observe(self, step: int, values: Values) -> list[Raised]:
        """Return the alarms that go on at ``step``; one that stays on is not raised again before it went off."""
        raised, on = [], []
        for alarm in self._alarms:
            self._standings[alarm.name], reading = look(alarm, self._standings[alarm.name], values)
            on += [alarm.name] * reading.on
            if reading.begins and reading.value is not None:
                said = alarm.says(values, reading.value, reading.threshold)
                raised.append(Raised(step, alarm.name, reading.value, reading.threshold, said))
        self.on = tuple(on)
        return raised

    def replay(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Remember what the lines of ``metrics.jsonl`` before a resume say, and raise nothing of it again."""
        for row in rows:
            self.observe(row["step"], row)

    def counted(self) -> dict[str, int]:
        """Metrics of the newest step: ``alarms/<name>`` is 1 while an alarm is on, ``alarms`` how many are."""
        return {"alarms": len(self.on)} | {f"alarms/{alarm.name}": int(alarm.name in self.on) for alarm in self._alarms}

    def stops(self, raised: Iterable[Raised]) -> Raised | None:
        """The first of ``raised`` that the run is to stop for."""
        return next((one for one in raised if one.alarm in self._stop), None)


def make_watch(
    *,
    stop: Sequence[str] = (),
    max_policy_ratio: float = 50.0,
    max_rollout_kl: float = 0.5,
    max_gradient_norm: float = 1000.0,
    max_gradient_norm_growth: float = 30.0,
    gradient_norm_floor: float = 1.0,
    min_entropy: float = 1e-3,
    max_garbled_turns: float = 0.5,
    max_lost_trajectories: float = 0.1,
    equal_rewards_steps: int = 10,
    patience: int = 3,
) -> Watch:
    """Return the watch over a run: the section ``alarms`` of a config.

    Args:
      stop: names of alarms that stop the run, with a last checkpoint; the others are told, and it goes on.
      max_policy_ratio: ``ratio_exploded`` above this ratio of policy to old, of any trained token.
      max_rollout_kl: ``kl_exploded`` above these nats a token between the policy and what sampled.
      max_gradient_norm: ``gradient_norm_exploded`` above this norm ...
      max_gradient_norm_growth: ... or above so many times its running median, if also above ...
      gradient_norm_floor: ... this norm.
      min_entropy: ``entropy_collapsed`` below these nats a token, for ``patience`` steps.
      max_garbled_turns: ``format_collapsed`` above this share of model turns, for ``patience`` steps.
      max_lost_trajectories: ``tool_faults`` above this share of trajectories, for ``patience`` steps.
      equal_rewards_steps: ``rewards_all_equal`` after so many steps in a row.
      patience: see above.

    Raises:
      ValueError: a value that is none of its kind, or a name in ``stop`` that no alarm has.
    """
    for name, bound in (
        ("max_policy_ratio", max_policy_ratio),
        ("max_rollout_kl", max_rollout_kl),
        ("max_gradient_norm", max_gradient_norm),
        ("max_gradient_norm_growth", max_gradient_norm_growth),
    ):
        check_above(name, bound, 0)
    check_number("gradient_norm_floor", gradient_norm_floor, 0)
    check_number("min_entropy", min_entropy, 0)
    for name, share in (("max_garbled_turns", max_garbled_turns), ("max_lost_trajectories", max_lost_trajectories)):
        if not is_number(share) or not 0 <= share <= 1:
            raise ValueError(f"{name} is {share!r}; give a share, a number >= 0 and <= 1.")
    check_whole("equal_rewards_steps", equal_rewards_steps, 1)
    check_whole("patience", patience, 1)
    _check_stop(stop)
    alarms = (
        kinds.non_finite(),
        kinds.ratio_exploded(max_policy_ratio),
        kinds.kl_exploded(max_rollout_kl),
        kinds.gradient_norm_exploded(max_gradient_norm, max_gradient_norm_growth, gradient_norm_floor),
        kinds.entropy_collapsed(min_entropy, patience),
        kinds.rewards_all_equal(equal_rewards_steps),
        kinds.format_collapsed(max_garbled_turns, patience),
        kinds.tool_faults(max_lost_trajectories, patience),
    )
    return Watch(alarms, stop)


def _check_stop(stop: Any) -> None:
    if not isinstance(stop, (tuple, list)):
        raise ValueError(f"stop is {stop!r}; give names of alarms, such as ('non_finite',), or () to stop for none.")
    for name in stop:
        if name not in ALARM_NAMES:
            near = difflib.get_close_matches(str(name), ALARM_NAMES, n=1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"stop names {name!r}, which is no alarm{meant}; the alarms are {', '.join(ALARM_NAMES)}.")
