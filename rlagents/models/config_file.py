"""One ``config.json``, with errors that name it."""

from typing import Any

Json = dict[str, Any]


class ConfigFile:
    """The contents of one ``config.json``; ``where`` names it in errors."""

    def __init__(self, contents: Json, where: str):
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

    def refuse_unless(self, key: str, supported: Any) -> None:
        """Raise unless the key is absent, null or ``supported``."""
        value = self.otherwise(key, supported)
        if value != supported:
            raise ValueError(f"{self.where}: {key}={value!r} is not supported here; only {supported!r} is.")
