"""One ``config.json``, with errors that name it."""

import math
from typing import Any

Json = dict[str, Any]


class ConfigFile:
    """The contents of one ``config.json``; ``where`` names it in errors."""

    def __init__(self, contents: Json, where: str):
        if not isinstance(contents, dict):
            raise ValueError(f"{where} holds a {type(contents).__name__}; expected a JSON object of keys and values.")
        self.contents = contents
        self.where = where

    def __getitem__(self, key: str) -> Any:
        if key not in self.contents:
            raise ValueError(f"{self.where} has no {key!r}; its keys are {sorted(self.contents)}.")
        return self.contents[key]

    def otherwise(self, key: str, default: Any) -> Any:
        """The value of a key that files may leave out (or null), ``default`` being what its absence means there."""
        value = self.contents.get(key)
        return default if value is None else value

    def size(self, key: str, default: int | None = None) -> int:
        """A positive integer; the key may be left out where there is a ``default``."""
        value = self[key] if default is None else self.otherwise(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise ValueError(f"{self.where}: {key}={value!r}; expected a positive integer.")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive, finite number, as it is written; the key may be left out where there is a ``default``."""
        value = self[key] if default is None else self.otherwise(key, default)
        # NaN compares as False; JSON as Python reads it has NaN and Infinity.
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ValueError(f"{self.where}: {key}={value!r}; expected a positive number.")
        return value

    def refuse_unless(self, key: str, supported: Any) -> None:
        """Raise unless the key is absent, null or ``supported``."""
        value = self.otherwise(key, supported)
        if value != supported:
            raise ValueError(f"{self.where}: {key}={value!r} is not supported here; only {supported!r} is.")
