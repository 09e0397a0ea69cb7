"""An alarm: a number of a step's metrics, the bound that it may not pass, and for how many steps in a row it must."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Values = Mapping[str, float]
"""A step's metrics by name, as ``metrics.jsonl`` has them."""


@dataclass(frozen=True)
class Alarm:
    """Pure: what it remembers between steps is a :class:`Standing`.

    Attributes:
      name: under which it is shown, logged and counted.
      measure: the number it looks at; None where a step says nothing of it.
      limit: the bound, of the numbers of earlier steps (the last ``remembers`` of those that are finite and above 0).
      says: what is wrong, of a step's values, the number and the bound: one line.
      patience: steps in a row that the number has to be beyond the bound.
      beyond: whether a number is beyond a bound.
      remembers: numbers of earlier steps that ``limit`` sees.
    """

    name: str
    measure: Callable[[Values], float | None]
    limit: Callable[[Sequence[float]], float]
    says: Callable[[Values, float, float], str]
    patience: int = 1
    beyond: Callable[[float, float], bool] = operator.gt
    remembers: int = 0


@dataclass(frozen=True)
class Standing:
    """What an alarm remembers: steps in a row that were beyond the bound, and earlier numbers."""

    in_a_row: int = 0
    earlier: tuple[float, ...] = ()


@dataclass(frozen=True)
class Reading:
    """What an alarm makes of one step.

    Attributes:
      value: the number; None where the step says nothing, or what it says is no number.
      threshold: the bound.
      on: the number has been beyond it for ``patience`` steps in a row or more.
      begins: it is on since this step.
    """

    value: float | None
    threshold: float
    on: bool
    begins: bool


def look(alarm: Alarm, standing: Standing, values: Values) -> tuple[Standing, Reading]:
    """Return what ``alarm`` remembers after a step with ``values``, and what it makes of them.

    A step that says nothing leaves it as it was: an alarm that is on stays on until a number says otherwise.
    """
    value, threshold = alarm.measure(values), alarm.limit(standing.earlier)
    if value is None or math.isnan(value):
        return standing, Reading(None, threshold, standing.in_a_row >= alarm.patience, begins=False)
    in_a_row = standing.in_a_row + 1 if alarm.beyond(value, threshold) else 0
    remembered = (value,) if math.isfinite(value) and value > 0 else ()
    earlier = (standing.earlier + remembered)[-alarm.remembers :] if alarm.remembers else ()
    reading = Reading(value, threshold, in_a_row >= alarm.patience, begins=in_a_row == alarm.patience)
    return Standing(in_a_row, earlier), reading
