"""Measure a trained policy on held-out tasks.

    python -m rlagents.evaluate --config=FILE.py[:argument] --workdir=DIR [--step=N] [--config.key=value ...]

Restores the weights of step N (default: the newest; ``--step=0`` is the policy before RL) of the run in DIR, samples
the held-out tasks and prints success. The run is left as it is, so ``--config.evaluation...`` and ``--config.rule...``
may differ from its own.
"""

import sys
from pathlib import Path
from typing import Any

from absl import app, flags, logging

from rlagents import learner, models
from rlagents.checkpoints import Checkpoints
from rlagents.command_line import parse_flags, read_options
from rlagents.compilation import programs_kept_by
from rlagents.learner import Optimizer
from rlagents.machinery import Machinery, abstract_params, assemble
from rlagents.types import Params

STEP = flags.DEFINE_integer("step", None, "Steps of RL after which to evaluate; the newest checkpoint by default.")


def main(argv: list[str]) -> None:
    """Read the command line, evaluate, print. Exits 2 for what the user has to mend."""
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments {argv[1:]}; options begin with --")
    try:
        config, experiment, workdir = read_options(trains=False)
        machinery = assemble(config, experiment, trains=False)
        try:
            with programs_kept_by(config, workdir):
                params, step = trained_params(machinery, workdir, STEP.value)
                evaluation = machinery.evaluate(machinery.make_sampler(params, version=step))
        finally:
            machinery.close()
    except (ValueError, FileNotFoundError, ModuleNotFoundError) as error:
        print(f"rlagents.evaluate: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"held-out success after {step} steps: {evaluation}")
    for name, value in evaluation.values().items():
        print(f"  {name} {value:.4g}")


def trained_params(machinery: Machinery, workdir: Path, step: int | None) -> tuple[Params, int]:
    """Weights of a run after ``step`` steps of RL (the newest checkpoint for None), and that number.

    Raises ValueError where there is no such checkpoint.
    """
    if not workdir.is_dir():
        raise ValueError(f"{workdir} is no folder; give the --workdir of a run.")
    experiment = machinery.experiment
    found = None if step == 0 else _newest(workdir / "checkpoints")
    if found is not None:
        optimizer, method_state = experiment.optimizer, experiment.method.init()
        return _restore(machinery, workdir / "checkpoints", optimizer, method_state, step or found), step or found
    if step:
        raise ValueError(f"{workdir} holds no checkpoint of step {step}; it holds none of RL at all.")
    if machinery.config.supervised.steps == 0:
        return machinery.make_params(), 0
    if _newest(workdir / "warm_up") != machinery.config.supervised.steps:
        raise ValueError(f"{workdir} holds no finished warm-up and no checkpoint of RL; train first.")
    return _restore(machinery, workdir / "warm_up", experiment.supervised_optimizer, (), None), 0


def _newest(folder: Path) -> int | None:
    if not folder.is_dir():
        return None
    with Checkpoints(folder) as checkpoints:
        return checkpoints.latest_step()


def _restore(machinery: Machinery, folder: Path, optimizer: Optimizer, method_state: Any, step: int | None) -> Params:
    decoder = machinery.experiment.decoder
    params = abstract_params(decoder)
    shardings = learner.state_shardings(params, optimizer, method_state, models.logical_axes(decoder), machinery.mesh)
    with Checkpoints(folder) as checkpoints:
        return checkpoints.restore(learner.abstract_state(params, optimizer, method_state, shardings), step)[0].params


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.mark_flags_as_required(["config", "workdir"])
    app.run(main, flags_parser=parse_flags)
