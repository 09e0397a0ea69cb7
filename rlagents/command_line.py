"""The two options that every program has, and what is made from them."""

import sys
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from rlagents.experiment import Config, Experiment, load_experiment

CONFIG = config_flags.DEFINE_config_file("config", None, "Python file with get_config() and build(config).")
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.")


def read_options() -> tuple[Config, Experiment, Path]:
    """Config, experiment and folder, as the command line says. Raises what ``get_config`` and ``build`` raise."""
    path, _, _ = config_flags.get_config_filename(flags.FLAGS["config"]).partition(":")  # FILE.py:argument
    return CONFIG.value, load_experiment(path, CONFIG.value), Path(str(WORKDIR.value))


def parse_flags(argv: list[str]) -> list[str]:
    """Parse the command line for ``app.run``; what cannot be parsed is told in a line, and the program exits with 2.

    ml_collections raises AttributeError for a key that the config does not have, and whatever ``get_config`` raises.
    """
    try:
        return flags.FLAGS(argv)
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError, OSError, ImportError) as error:
        # ml_collections wraps a KeyError, whose text is a repr.
        cause = error.args[0] if error.args and isinstance(error.args[0], Exception) else error
        said = str(cause.args[0] if isinstance(cause, KeyError) and cause.args else cause).strip()
        if "Traceback" in said:  # of what get_config raised, as text
            said = said.splitlines()[-1]
        print(f"rlagents.{Path(argv[0]).stem}: {said}", file=sys.stderr)
        sys.exit(2)
