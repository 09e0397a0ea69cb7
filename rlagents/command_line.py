"""The two options that every program has, and what is made from them."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags
from ml_collections import ConfigDict, config_flags
from ml_collections.config_flags.config_flags import ConfigFileFlagParser

from rlagents.all_checks import check_config
from rlagents.config_checks import check_compilation_cache
from rlagents.config_defaults import complete
from rlagents.config_help import described
from rlagents.experiment import Config, Experiment, load_experiment, load_module
from rlagents.overrides import ConfigFileError, config_files, explained, without_get_config
from rlagents.problems import Problems
from rlagents.steady_output import steady_output
from rlagents.stored_config import note_origin, origin_of, read_stored_config

# Config files import transformers, which else tells every run that torch is missing, before anything of ours.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

CONFIG = config_flags.DEFINE_config_file("config", None, "Python file with get_config() and build(config).")
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.")
HELP_OPTIONS = ("--config.help", "-config.help", "--config_help", "-config_help")

_WANTED = (
    "--config takes a Python file with get_config() and build(config), such as experiments/quickstart/*.py, or the "
    "config.json of a run."
)


def check_words(argv: Sequence[str]) -> None:
    """Refuse what is left of a command line without its options. Raises ValueError."""
    if len(argv) > 1:
        raise ValueError(f"unknown arguments {' '.join(argv[1:])}; options begin with --.")


class _ConfigParser(ConfigFileFlagParser):
    """Completes what a config file gives, notes where it comes from, and reads the ``config.json`` of a run."""

    def parse(self, path: str) -> Config:
        file, _, argument = path.partition(":")
        if file.endswith(".json"):
            return read_stored_config(Path(file))
        if not Path(file).is_file():
            raise FileNotFoundError(path)
        try:
            config = super().parse(path)
            getattr(config, "keys", None)  # what stands for a file that raised an OSError raises it here
        except (Exception, SystemExit) as error:
            if isinstance(error, SyntaxError) or without_get_config(error):
                raise
            raise ConfigFileError(file, error) from error
        if isinstance(config, ConfigDict):
            complete(config)
            note_origin(config, file, argument or None)
        return config


flags.FLAGS["config"].parser = _ConfigParser("config")


def read_options(*, trains: bool = True) -> tuple[Config, Experiment, Path]:
    """Config, experiment and folder, as the command line says.

    ``trains`` is False for a program that only evaluates. Raises ValueError for a file that cannot be read or gives no
    config, ConfigError with all that can be seen to be wrong with the config before ``build`` is called; whatever
    ``build`` raises passes through.
    """
    path, _, _ = config_flags.get_config_filename(flags.FLAGS["config"]).partition(":")  # FILE.py:argument
    config = CONFIG.value
    if not Path(path).is_file():
        raise ValueError(f"{path} is no file; {_WANTED}")
    if not isinstance(config, ConfigDict):
        raise ValueError(
            f"get_config() of {path} gives a {type(config).__name__}; it has to return an ml_collections.ConfigDict."
        )
    if not WORKDIR.value:
        raise ValueError("--workdir is empty; give the folder of the run.")
    workdir, problems = Path(WORKDIR.value), Problems()
    problems.ask(check_config, config, trains=trains)
    problems.ask(check_compilation_cache, config, workdir)
    problems.refuse()
    return config, load_experiment(origin_of(config) or path, config), workdir


def parse_flags(argv: list[str]) -> list[str]:
    """Parse the command line for ``app.run``; what cannot be parsed is told, and the program exits with 2.

    ``--config.help`` prints all keys of the config instead, and exits with 0.
    """
    program = f"rlagents.{Path(argv[0]).stem}"
    try:
        help_text = _help(argv) if any(option in HELP_OPTIONS for option in argv[1:]) else None
        left = flags.FLAGS(argv) if help_text is None else []
    # ml_collections raises AttributeError for a key that the config does not have.
    except (
        flags.Error,
        ConfigFileError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        OSError,
        SyntaxError,
    ) as error:
        print(f"{program}: {_explained(error, argv)}", file=sys.stderr)
        sys.exit(2)
    except SystemExit:  # --help, for which absl ends with 1
        sys.exit(0)
    if help_text is None:
        return left
    with steady_output():
        print(help_text, flush=True)
    sys.exit(0)


def _help(argv: list[str]) -> str:
    files = config_files(argv)
    if not files:
        return described(None, {})
    config = _load(files[-1])
    if not isinstance(config, ConfigDict):
        raise OSError(f"{files[-1]} gives no config")
    own = getattr(load_module(origin_of(config) or files[-1]), "MEANINGS", {})
    return described(config, own)


def _explained(error: Exception, argv: list[str]) -> str:
    return explained(error, argv, _load, _WANTED)


def _load(file: str) -> Config:
    return flags.FLAGS["config"].parser.parse(file)
