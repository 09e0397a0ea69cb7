"""What ``--config.help`` prints: every key with its default, unit and meaning, section by section."""

import textwrap
from collections.abc import Mapping

from rlagents.config_defaults import defaults
from rlagents.config_meanings import MEANINGS, Meaning
from rlagents.config_sections import leaves
from rlagents.experiment import Config

_WIDTH = 118
_INDENT = 6


def described(config: Config | None, own: Mapping[str, tuple[str, str]]) -> str:
    """All keys of a config file and those it leaves to their defaults; without a file, those that the programs know.

    Args:
      config: of the file, completed by ``config_defaults``; its values are the defaults. None for no file.
      own: ``key -> (unit, meaning)`` of the file's own keys, its ``MEANINGS``.
    """
    meanings = MEANINGS | {key: Meaning(*said) for key, said in own.items()}
    if config is None:
        values, title = {key: "" for key in meanings} | {k: repr(v) for k, v in defaults().items()}, "All known keys"
    else:
        values, title = {key: repr(value) for key, value in leaves(config).items()}, "Keys of this config"
    lines = [f"{title}: set them with --config.KEY=VALUE. KEY = default [unit], then what it means."]
    section = None
    for key in sorted(values, key=lambda key: ("." in key, key.rpartition(".")[0], key)):
        if key.rpartition(".")[0] != section:
            section = key.rpartition(".")[0]
            lines += ["", section or "(no section)"]
        lines += _entry(key, values[key], meanings.get(key))
    return "\n".join(lines)


def _entry(key: str, value: str, meaning: Meaning | None) -> list[str]:
    unit = f" [{meaning.unit}]" if meaning and meaning.unit else ""
    text = meaning.text if meaning else "(a key of the config file's own; its MEANINGS do not say)"
    head = f"  {key} = {value}{unit}" if value else f"  {key}{unit}"
    return [head, *textwrap.wrap(text, _WIDTH, initial_indent=" " * _INDENT, subsequent_indent=" " * _INDENT)]
