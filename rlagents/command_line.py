"""The two options that every program has, and what is made from them."""

from pathlib import Path

from absl import flags
from ml_collections import config_flags

from rlagents.experiment import Config, Experiment, load_experiment

CONFIG = config_flags.DEFINE_config_file("config", None, "Python file with get_config() and build(config).")
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.")


def read_options() -> tuple[Config, Experiment, Path]:
    """Config, experiment and folder, as the command line says. Raises what ``get_config`` and ``build`` raise."""
    experiment = load_experiment(config_flags.get_config_filename(flags.FLAGS["config"]), CONFIG.value)
    return CONFIG.value, experiment, Path(str(WORKDIR.value))
