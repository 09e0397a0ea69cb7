"""A run's ``config.json`` as a config again: what ``--config=RUN/config.json`` gives.

Programs note in the config itself, under ``experiment``, which file built it and with which argument. So the stored
config can be run as it is, and a folder of another experiment is another config.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict, config_dict

from rlagents.config_defaults import complete
from rlagents.experiment import Config
from rlagents.workdir import read_json

ORIGIN = "experiment"


def note_origin(config: Config, file: str, argument: str | None) -> None:
    """Write into ``config`` where it comes from: the path relative to the working directory where it lies below it.

    Raises ValueError for a config that has a key of that name already.
    """
    if ORIGIN in config:
        raise ValueError(f"{file} has a key {ORIGIN!r}, under which programs note the config file; name it otherwise.")
    path, here = Path(file).resolve(), Path.cwd()
    noted = path.relative_to(here) if path.is_relative_to(here) else path
    with config.unlocked():
        config[ORIGIN] = ConfigDict({"file": noted.as_posix(), "argument": _given(argument)})


def origin_of(config: Config) -> str | None:
    """The file that builds the experiment of ``config``; None where nobody noted it."""
    return config[ORIGIN].file if ORIGIN in config else None


def read_stored_config(path: Path) -> Config:
    """The config that a run's ``config.json`` holds, locked, with today's defaults where it has no value.

    Raises ValueError where the file is damaged, does not say which config file built it, or that one is not there.
    """
    try:
        stored = read_json(path)
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); give the run's config file and changes instead.") from error
    origin = stored.get(ORIGIN) if isinstance(stored, Mapping) else None
    file = origin.get("file") if isinstance(origin, Mapping) else None
    if not isinstance(file, str):
        raise ValueError(
            f"{path} does not say which config file built it (it has no {ORIGIN}.file); give the run's config file and "
            "changes instead."
        )
    if not Path(file).is_file():
        raise ValueError(
            f"{path} was built by {file}, which is not there; start from the folder where that run was started, or "
            "give the config file and changes instead."
        )
    config = _given(stored)
    complete(config)
    return config.lock()


def _given(value: Any) -> Any:
    """Out of JSON: sequences of a config are tuples, and None may be set to anything on the command line."""
    if isinstance(value, Mapping):
        return ConfigDict({key: _given(each) for key, each in value.items()})
    if isinstance(value, list):
        return tuple(each if each is None else _given(each) for each in value)
    return config_dict.placeholder(object) if value is None else value
