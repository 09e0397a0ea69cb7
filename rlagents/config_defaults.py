"""Defaults of config keys: those of the signatures that take them, so that a default is written down once."""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict, config_dict

from rlagents.config_sections import arguments_of_sections
from rlagents.experiment import Config

_PLAIN = (bool, int, float, str, tuple, type(None))


def defaults() -> dict[str, Any]:
    """``section.key -> default`` of every argument that has one, and one that JSON can hold."""
    return {
        f"{section}.{key}": parameter.default
        for section, parameters in arguments_of_sections().items()
        for key, parameter in parameters.items()
        if isinstance(parameter.default, _PLAIN)
    }


def complete(config: Config) -> None:
    """Write into ``config`` what it leaves to its defaults: a stored config then says all that was in force.

    A section that is missing, or is none, is left to ``config_sections``.
    """
    with config.unlocked():
        for name, value in defaults().items():
            section, _, key = name.rpartition(".")
            given = _section(config, section)
            if given is not None and key not in given:
                # An int placeholder would refuse None on the command line, and None as it is would refuse an int.
                given[key] = config_dict.placeholder(object) if value is None else value


def _section(config: Config, name: str) -> ConfigDict | None:
    found: Any = config
    for key in name.split("."):
        if not isinstance(found, (ConfigDict, Mapping)) or key not in found:
            return None
        found = found[key]
    return found if isinstance(found, ConfigDict) else None
