"""What is wrong with a command line: every ``--config.key=value`` that cannot be taken, in a line each."""

import re
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags
from ml_collections import ConfigDict, config_flags

from rlagents.all_checks import check_config
from rlagents.config_sections import leaves
from rlagents.experiment import Config
from rlagents.problems import ConfigError, Problems, near_match

_KINDS = (
    (bool, "True or False"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "a text"),
    (tuple, "a tuple, such as '(1, 2)'"),
)


class ConfigFileError(Exception):
    """A config file raised something, or ended the program, when it was read or its ``get_config`` called."""

    def __init__(self, file: str, error: BaseException):
        if str(error).startswith(("Error whilst parsing config file", "Configuration is not available")):
            error = error.__cause__ or error.__context__ or error  # ml_collections wraps some of them
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(frames) if Path(frame.filename).name == Path(file).name), None)
        where = "" if line is None else f", line {line}"
        if isinstance(error, SystemExit):
            said = f"it ends the program (exit code {error.code}); it may do no more than define what a run is"
        else:
            # What a file raises as a ValueError it says to whoever gave the argument.
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            said = kind + " ".join(str(error).split())
        super().__init__(f"{file}{where}: {said}")


class Override(NamedTuple):
    """``name`` is dotted, without the indices of its last key; ``options`` is the command line's part."""

    name: str
    options: tuple[str, ...]


def explained(error: Exception, argv: Sequence[str], load: Callable[[str], Any], wanted: str) -> str:
    """What is said of an error that parsing ``argv`` raised: which file, which keys, what is wrong with them.

    ``load`` gives the config of a file; ``wanted`` says what ``--config`` takes.
    """
    if isinstance(error, ConfigFileError):
        return str(error)
    files = config_files(argv)
    path = files[-1].partition(":")[0] if files else "the config file"
    if missing := re.search(r"Flag --(\w+) must have a value other than None", str(error)):
        return f"--{missing[1]} is missing; {wanted if missing[1] == 'config' else 'give the folder of the run.'}"
    if isinstance(error, SyntaxError):
        return f"{path} is not Python: {error.msg} ({error.filename}, line {error.lineno}); {wanted}"
    if isinstance(error, OSError):
        return f"{path} {'cannot be read' if Path(path).is_file() else 'is no file'}; {wanted}"
    if without_get_config(error):
        return f"{path} has no get_config(); {wanted}"
    said = str(error).strip()
    lines = _refused(argv, files[-1], load) if files else []
    if lines:
        also = [said] if isinstance(error, flags.UnrecognizedFlagError) else []
        return str(ConfigError([*lines, *also]))
    # Of what get_config raised, as text, the last line says what it was.
    return f"{path}: {said.splitlines()[-1]}" if "Traceback" in said else " ".join(said.split())


def without_get_config(error: BaseException) -> bool:
    """Whether it says that a config file has no ``get_config``."""
    return isinstance(error, AttributeError) and "'get_config'" in str(error)


def config_files(argv: Sequence[str]) -> list[str]:
    """Values of all ``--config`` options, ``FILE.py[:argument]``."""
    following = [*argv[1:], ""]
    joined = [match[1] for option in argv[1:] if (match := re.fullmatch(r"--?config=(.*)", option))]
    apart = [following[place + 1] for place, option in enumerate(argv[1:]) if option in ("--config", "-config")]
    return apart + joined


def overrides(argv: Sequence[str]) -> list[Override]:
    """All ``--config.name=value`` options, in order; a value may stand in an option of its own."""
    found, following = [], [*argv[1:], ""]
    for place, option in enumerate(argv[1:]):
        if match := re.match(r"--?config\.([^=\[]+)", option):
            whole = (option,) if "=" in option else (option, following[place + 1])
            found.append(Override(match[1], whole))
    return found


def unknown_key(config: Any, name: str) -> str | None:
    """What is wrong with a dotted name; None if the config has such a key."""
    section, walked = config, ""
    for key in name.split("."):
        where = f"the keys of {walked}" if walked else "its keys"
        if not isinstance(section, ConfigDict):
            return f"the config has no key {name}: {walked} is a value, {section!r}, and no section."
        if key not in section:
            near = near_match(name, leaves(config)) or near_match(name, config)
            return f"the config has no key {name}; {where} are {', '.join(section)}.{near}"
        section, walked = section[key], f"{walked}.{key}" if walked else key
    return None


def _refused(argv: Sequence[str], file: str, load: Callable[[str], Any]) -> list[str]:
    """A line for each override that cannot be taken, and for what is wrong with the config that the others make."""
    problems = Problems()
    try:
        config = load(file)
    except Exception:  # whatever the file raises, the first error tells
        return []
    for override in overrides(argv):
        unknown = unknown_key(config, override.name)
        if unknown is not None:
            problems.note(unknown)
        else:
            problems.ask(_take, config, override)
    if problems.lines:
        problems.ask(check_config, config, trains=True)
    return problems.lines


def _take(config: Config, override: Override) -> None:
    """Set a key as the command line does. Raises ValueError for a value that is none of the key's kind."""
    argv, values = ["", *override.options], flags.FlagValues()
    before = leaves(config).get(override.name)
    try:
        given = config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=argv)
        values(argv)
        _ = given.value  # where overrides are written into the config
    except (flags.Error, TypeError, ValueError, AttributeError) as error:
        kind = next((text for kind, text in _KINDS if isinstance(before, kind)), None)
        said = override.options[-1].partition("=")[2] if len(override.options) == 1 else override.options[1]
        if kind is None:
            raise ValueError(f"{override.name} is {said!r}: {' '.join(str(error).split())}") from error
        raise ValueError(f"{override.name} is {said!r}; give {kind} (it is {before!r} in the file).") from error
