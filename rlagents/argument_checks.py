"""Numbers that a user gives, checked at the border: later, a text or a NaN is a failure far from where it was written.

A message says what was found and what to give, and begins with the name, so that who knows more of it can be put in
front: ``decode_rows is 0; ...`` of the sampler is ``sampler.decode_rows is 0; ...`` of a config.
"""

import math
from numbers import Integral, Real
from typing import Any


def is_whole(value: Any) -> bool:
    """Whether it is a whole number of Python's or NumPy's: no bool, and no float, since shapes take none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether it is a finite real number of Python's or NumPy's, and no bool."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def check_flag(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; give True or False.")


def check_whole(name: str, value: Any, lowest: int) -> None:
    """Raise ValueError unless ``value`` is a whole number from ``lowest`` on."""
    if not is_whole(value) or value < lowest:
        raise ValueError(f"{name} is {value!r}; give a whole number >= {lowest}.")


def check_number(name: str, value: Any, lowest: float) -> None:
    """Raise ValueError unless ``value`` is a finite number from ``lowest`` on."""
    if not is_number(value) or value < lowest:
        raise ValueError(f"{name} is {value!r}; give a number >= {lowest}.")


def check_above(name: str, value: Any, bound: float) -> None:
    """Raise ValueError unless ``value`` is a finite number above ``bound``."""
    if not is_number(value) or value <= bound:
        raise ValueError(f"{name} is {value!r}; give a number > {bound}.")
