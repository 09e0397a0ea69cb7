"""Arguments of stages, checked where they are given: later, a NaN or a text would only be a loss that is no number."""

import math
from collections.abc import Callable
from typing import Any


def check_arguments(stage: str, expected: str, fine: Callable[..., bool], **given: Any) -> None:
    """Raise ValueError, naming stage and arguments, unless all are finite numbers and ``fine(**given)``.

    >>> check_arguments("constant", "1 token or more", lambda length: length >= 1, length=0)
    Traceback (most recent call last):
    ValueError: constant(length=0): expected 1 token or more.
    """
    if not (all(map(_is_finite_number, given.values())) and fine(**given)):
        found = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise ValueError(f"{stage}({found}): expected {expected}.")


def _is_finite_number(value: Any) -> bool:
    try:
        return not isinstance(value, bool | str) and math.isfinite(value)
    except TypeError:
        return False


def check_statistics(stage: str, *, ddof: int, epsilon: float) -> None:
    """Raise ValueError unless ``ddof`` is 0 or 1 and ``epsilon``, which is added to a std, not negative."""
    check_arguments(stage, "0 (population) or 1 (sample)", lambda ddof: ddof in (0, 1), ddof=ddof)
    check_arguments(stage, "0 or more, in units of reward", lambda epsilon: epsilon >= 0, epsilon=epsilon)


def check_function(stage: str, name: str, given: Any, expected: str) -> None:
    """Raise ValueError unless ``given`` can be called."""
    if not callable(given):
        raise ValueError(f"{stage}({name}={given!r}): expected {expected}.")


def name_of(function: Callable[..., Any]) -> str:
    """Its own name, or that of what a ``functools.partial`` calls."""
    return getattr(function, "__name__", None) or name_of(getattr(function, "func", type(function)))


def kind_of(given: Any) -> str:
    """Dtype and shape of an array, or the type of anything else."""
    return f"{given.dtype} of shape {given.shape}" if hasattr(given, "dtype") else f"a {type(given).__name__}"
