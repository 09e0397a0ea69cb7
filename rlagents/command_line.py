"""The two options that every program has, and what is made from them."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from rlagents.config_checks import check_compilation_cache
from rlagents.config_sections import check_sections
from rlagents.experiment import Config, Experiment, load_experiment

CONFIG = config_flags.DEFINE_config_file("config", None, "Python file with get_config() and build(config).")
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.")

_WANTED = "--config takes a Python file with get_config() and build(config), such as experiments/quickstart/*.py."


def read_options() -> tuple[Config, Experiment, Path]:
    """Config, experiment and folder, as the command line says.

    Raises ValueError for a file that cannot be read or gives no config, and for a config that lacks what every run
    needs, or names no folder to keep programs in; whatever ``build`` raises passes through.
    """
    path, _, _ = config_flags.get_config_filename(flags.FLAGS["config"]).partition(":")  # FILE.py:argument
    config = CONFIG.value
    if not Path(path).is_file():
        raise ValueError(f"{path} is no file; {_WANTED}")
    if not isinstance(config, ConfigDict):  # ml_collections gives an object of its own for a file it could not read
        found = "cannot be read" if "_ErrorConfig" in str(type(config)) else f"gives a {type(config).__name__}"
        raise ValueError(f"get_config() of {path} {found}; it has to return an ml_collections.ConfigDict.")
    check_sections(config)
    workdir = Path(str(WORKDIR.value))
    check_compilation_cache(config, workdir)
    return config, load_experiment(path, config), workdir


def parse_flags(argv: list[str]) -> list[str]:
    """Parse the command line for ``app.run``; what cannot be parsed is told in a line, and the program exits with 2."""
    try:
        return flags.FLAGS(argv)
    # ml_collections raises AttributeError for a key that the config does not have, and whatever the file raises.
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError, OSError, ImportError, SyntaxError) as error:
        print(f"rlagents.{Path(argv[0]).stem}: {_explained(error, argv)}", file=sys.stderr)
        sys.exit(2)


def _explained(error: Exception, argv: Sequence[str]) -> str:
    """One line for an error: which file, which key, what is wrong with it."""
    files = _config_files(argv)
    path = files[-1].partition(":")[0] if files else "the config file"
    if isinstance(error, SyntaxError):
        return f"{path} is not Python: {error.msg} ({error.filename}, line {error.lineno}); {_WANTED}"
    if isinstance(error, OSError):
        return f"{path} cannot be read; {_WANTED}"
    if isinstance(error, AttributeError) and "'get_config'" in str(error):
        return f"{path} has no get_config(); {_WANTED}"
    if isinstance(error, (AttributeError, KeyError)):
        unknown = [_unknown_key(_load(file), key) for file in files for key in _overrides(argv)]
        if any(unknown):
            return next(filter(None, unknown))
    said = str(error).strip()
    # Of what get_config raised, as text, the last line says what it was.
    return f"{path}: {said.splitlines()[-1]}" if "Traceback" in said else " ".join(said.split())


def _unknown_key(config: Any, name: str) -> str | None:
    """What is wrong with a dotted name; None if the config has such a key."""
    section, walked = config, ""
    for key in name.split("."):
        where = f"the keys of {walked}" if walked else "its keys"
        if not isinstance(section, ConfigDict):
            return f"the config has no key {name}: {walked} is a value, {section!r}, and no section."
        if key not in section:
            return f"the config has no key {name}; {where} are {', '.join(section)}."
        section, walked = section[key], f"{walked}.{key}" if walked else key
    return None


def _config_files(argv: Sequence[str]) -> list[str]:
    """Values of all ``--config`` options, ``FILE.py[:argument]``."""
    following = [*argv[1:], ""]
    joined = [match[1] for option in argv[1:] if (match := re.fullmatch(r"--?config=(.*)", option))]
    apart = [following[place + 1] for place, option in enumerate(argv[1:]) if option in ("--config", "-config")]
    return apart + joined


def _overrides(argv: Sequence[str]) -> list[str]:
    """Dotted names of all ``--config.name`` options, without the indices of their last keys."""
    matches = (re.match(r"--?config\.([^=\[]+)", option) for option in argv[1:])
    return [match[1] for match in matches if match]


def _load(file: str) -> Any:
    return flags.FLAGS["config"].parser.parse(file)
