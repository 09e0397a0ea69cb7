"""Measure a trained policy on held-out tasks.

    python -m rlagents.evaluate --config=FILE.py[:argument] --workdir=DIR [--step=N] [--output=FOLDER]
                                [--config.key=value ...]

Restores the weights of step N (default: the newest; ``--step=0`` is the policy before RL) of the run in DIR, samples
the held-out tasks and prints success and all facts, over all tasks and by category, with 95% intervals. The run is left
as it is, so ``--config.evaluation...`` and ``--config.rule...`` may differ from its own. ``--output`` names a new
folder for the numbers (``evaluation.json``, ``evaluations.jsonl``) and the conversations (``held_out.jsonl``), which
``rlagents.report`` shows like a run's.
"""

import json
import sys
from pathlib import Path

from absl import app, flags, logging

from rlagents.checkpoints import Checkpoints
from rlagents.command_line import check_words, parse_flags, read_options
from rlagents.compilation import programs_kept_by
from rlagents.durable import WriteError, write_durably
from rlagents.evaluation import Evaluation
from rlagents.experiment import Config
from rlagents.first_weights import COPIED, REINFORCED, WARM_UP, placed_params
from rlagents.machinery import Machinery, assemble
from rlagents.metrics import JsonLines, MetricsWriter
from rlagents.trajectory_log import held_out_lines
from rlagents.types import Params
from rlagents.workdir import claim_workdir

OUTPUT = flags.DEFINE_string("output", None, "New folder for what is found: numbers and conversations.")
STEP = flags.DEFINE_integer("step", None, "Steps of RL after which to evaluate; the newest checkpoint by default.")


def main(argv: list[str]) -> None:
    """Read the command line, evaluate, print. Exits 2 for what the user has to mend."""
    try:
        check_words(argv)
        config, experiment, workdir = read_options(trains=False)
        output = None if OUTPUT.value is None else _new_folder(OUTPUT.value)
        machinery = assemble(config, experiment, trains=False)
        try:
            with programs_kept_by(config, workdir):
                params, step = trained_params(machinery, workdir, STEP.value)
                evaluation = machinery.evaluate(machinery.make_sampler(params, version=step))
        finally:
            machinery.close()
        if output is not None:
            write_evaluation(output, config, step, evaluation)
    except (ValueError, FileNotFoundError, PermissionError, ModuleNotFoundError, WriteError) as error:
        print(f"rlagents.evaluate: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"held-out success after {step} steps: {evaluation}")
    for line in evaluation.table():
        print(f"  {line}")


def write_evaluation(folder: Path, config: Config, step: int, evaluation: Evaluation) -> None:
    """Write what a run's folder holds of an evaluation, and its whole table. Raises WriteError."""
    claim_workdir(folder, config)
    write_durably(folder / "evaluation.json", (json.dumps(evaluation.document(), indent=2) + "\n").encode())
    with MetricsWriter(folder / "evaluations.jsonl") as evaluations:
        evaluations.write(step, evaluation.values())
    with JsonLines(folder / "held_out.jsonl") as held_out:
        held_out_lines(held_out, step, evaluation.groups)


def _new_folder(name: str) -> Path:
    folder = Path(name)
    if not name or folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise ValueError(f"--output is {name!r}; give a new folder: what is there is never overwritten.")
    return folder


def trained_params(machinery: Machinery, workdir: Path, step: int | None) -> tuple[Params, int]:
    """Weights of a run after ``step`` steps of RL (the newest checkpoint for None), and that number.

    Raises ValueError where there is no such checkpoint, or where it is damaged.
    """
    if not workdir.is_dir():
        raise ValueError(f"{workdir} is no folder; give the --workdir of a run.")
    found = None if step == 0 else _newest(workdir / REINFORCED)
    if found is not None:
        return _params(machinery, workdir / REINFORCED, found if step is None else step), step or found
    if step:
        raise ValueError(f"{workdir} holds no checkpoint of step {step}; it holds none of RL at all.")
    warm_up_steps = machinery.config.supervised.steps
    if warm_up_steps == 0:
        copied = _newest(workdir / COPIED)
        return (machinery.make_params() if copied is None else _params(machinery, workdir / COPIED, copied)), 0
    if _newest(workdir / WARM_UP) != warm_up_steps:
        raise ValueError(f"{workdir} holds no finished warm-up and no checkpoint of RL; train first.")
    return _params(machinery, workdir / WARM_UP, warm_up_steps), 0


def _newest(folder: Path) -> int | None:
    """Step of the newest whole checkpoint; None where there is none at all."""
    with Checkpoints(folder) as checkpoints:
        step, damaged = checkpoints.newest()
    if damaged and step is None:
        raise ValueError(f"{folder} holds no checkpoint that is whole ({damaged}).")
    for other, what in damaged.items():
        print(f"WARNING: the checkpoint of step {other} in {folder} is damaged ({what})", file=sys.stderr, flush=True)
    return step


def _params(machinery: Machinery, folder: Path, step: int) -> Params:
    with Checkpoints(folder) as checkpoints:
        return checkpoints.params(placed_params(machinery), step)


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.mark_flags_as_required(["config", "workdir"])
    app.run(main, flags_parser=parse_flags)
