"""All cells of RC-GRPO's table over seeds, one run at a time, and the sweeps; what is done is skipped, so it resumes.

    python -m experiments.rc_grpo.grid DIR [--quick] [--seeds=5] [--what=grid] [--config.key=value ...]
    python -m experiments.rc_grpo.table DIR

``--what`` is ``grid``, or a sweep of RCTP + RC-GRPO: ``high_probability``, ``group_size`` or ``draw``; they share
stage 1 with the grid. ``--quick`` is two seeds and fewer steps. Further options go to every run. Each run has a folder,
``DIR/seed-N/CELL``, and its log beside it; ``goals.json`` in the folder says that it is finished and measured. Ctrl-C
or SIGTERM stop the run that is under way, with all saved (exit code 75); the same command goes on.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from experiments.rc_grpo.cells import GRID, SWEEPS, Cell, with_parents
from experiments.rc_grpo.evaluate_goals import FILE as GOALS_FILE
from rlagents.durable import write_durably
from rlagents.interruption import EXIT_CODE as INTERRUPTED

CONFIG = Path(__file__).with_name("procedural.py")
SETTINGS = "grid.json"

_FEWER_TASKS = "--config.evaluation.num_tasks=120"
_OF_STAGE_2 = ("--config.rl.steps=25", _FEWER_TASKS)
QUICK = {"grpo": _OF_STAGE_2, "rc-grpo": _OF_STAGE_2}
"""Variant -> options of ``--quick``; stage 1 stays as long as it is, for it has to be peaked."""


class Settings(NamedTuple):
    """What all runs of a folder share; another command on it has to agree."""

    quick: bool
    further: Sequence[str]

    def options(self, cell: Cell) -> list[str]:
        """Of a cell's run, later ones win."""
        given = [f"--config.{key}={value}" for key, value in cell.options.items()]
        if self.quick:
            given += QUICK.get(cell.variant, (_FEWER_TASKS,))
        return [*given, *self.further]


def train_command(folder: Path, cell: Cell, seed: int, settings: Settings) -> list[str]:
    """The command of a cell's run in the folder of its seed."""
    command = [sys.executable, "-m", "rlagents.train", f"--config={CONFIG}:{cell.variant}"]
    command += [f"--workdir={folder / cell.name}", f"--config.seed={seed}"]
    command += ["--config.compilation_cache=../../compilation_cache", *settings.options(cell)]
    if cell.parent:
        command.append(f"--config.checkpoint.restore_from={folder / cell.parent / 'warm_up'}")
    return command


def evaluate_command(folder: Path, cell: Cell) -> list[str]:
    """The command that measures a cell's finished run."""
    run = folder / cell.name
    module = "experiments.rc_grpo.evaluate_goals"
    return [sys.executable, "-m", module, f"--config={run / 'config.json'}", f"--workdir={run}"]


def run_all(directory: Path, cells: Sequence[Cell], seeds: Sequence[int], settings: Settings) -> None:
    """Run what is not finished, seed by seed. Ends the program where a run is stopped or fails."""
    children = Children()
    todo = [(seed, cell) for seed in seeds for cell in cells if not _finished(directory, seed, cell)]
    print(f"{len(todo)} of {len(seeds) * len(cells)} runs to do", flush=True)
    for number, (seed, cell) in enumerate(todo):
        folder, start = directory / f"seed-{seed}", time.perf_counter()
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / f"{cell.name}.log"
        for command in (train_command(folder, cell, seed, settings), evaluate_command(folder, cell)):
            code = children.run(command, log)
            if code:
                _end(code, cell, seed, log)
        print(f"{number + 1}/{len(todo)}  seed {seed}  {cell.title}: {time.perf_counter() - start:.0f} s", flush=True)


class Children:
    """Processes run one after another; what asks this one to stop is handed on, and it waits until they have saved."""

    def __init__(self) -> None:
        self._now: subprocess.Popen[bytes] | None = None
        self._stopped = False
        for asked in (signal.SIGTERM, signal.SIGINT):
            signal.signal(asked, self._hand_on)

    def run(self, command: Sequence[str], log: Path) -> int:
        """Run a command, its output at the end of ``log``; its exit code, or that of an interruption."""
        with log.open("ab") as out:
            # A session of its own: a terminal's Ctrl-C would reach it twice, and the second one means at once.
            self._now = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
            if self._stopped:
                self._now.terminate()
            code = self._now.wait()
            self._now = None
        return INTERRUPTED if self._stopped else code

    def _hand_on(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stopped = True
        if self._now is not None:
            self._now.terminate()


def _finished(directory: Path, seed: int, cell: Cell) -> bool:
    return (directory / f"seed-{seed}" / cell.name / GOALS_FILE).exists()


def _end(code: int, cell: Cell, seed: int, log: Path) -> None:
    where = f"seed {seed}, {cell.title}"
    if code == INTERRUPTED:
        print(f"{where}: stopped, and saved; the same command goes on", flush=True)
        sys.exit(INTERRUPTED)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    print(f"{where} ended with {code}; the end of {log}:", *lines[-5:], sep="\n  ", file=sys.stderr)
    sys.exit(1)


def claim(directory: Path, settings: Settings) -> None:
    """Note the settings in a new folder. Raises ValueError where it is one of other settings."""
    path, wanted = directory / SETTINGS, {"quick": settings.quick, "further": list(settings.further)}
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        if found != wanted:
            raise ValueError(f"{directory} holds runs with {found}, asked for {wanted}; give another folder.")
        return
    directory.mkdir(parents=True, exist_ok=True)
    write_durably(path, (json.dumps(wanted) + "\n").encode())


def parsed(argv: Sequence[str]) -> tuple[Path, list[Cell], list[int], Settings]:
    """Folder, cells, seeds and settings of a command line; exits with 2 for one that is none."""
    parser = argparse.ArgumentParser(prog="experiments.rc_grpo.grid", allow_abbrev=False)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--quick", action="store_true", help="two seeds, fewer steps, fewer held-out tasks")
    parser.add_argument("--seeds", type=int, help="seeds 0 to N - 1 (5; with --quick 2)")
    parser.add_argument("--what", choices=["grid", *SWEEPS], default="grid")
    given, further = parser.parse_known_args(argv)
    wrong = [option for option in further if not option.startswith("--config.")]
    if wrong:
        parser.error(f"unknown: {' '.join(wrong)}; further options are --config.KEY=VALUE")
    seeds = given.seeds if given.seeds is not None else 2 if given.quick else 5
    if seeds < 1:
        parser.error(f"--seeds is {seeds}; give 1 or more")
    cells = list(GRID) if given.what == "grid" else with_parents(SWEEPS[given.what])
    return given.directory.resolve(), cells, list(range(seeds)), Settings(given.quick, tuple(further))


def main(argv: Sequence[str]) -> None:
    """Read the command line, run."""
    directory, cells, seeds, settings = parsed(argv)
    try:
        claim(directory, settings)
    except (ValueError, OSError) as error:
        print(f"experiments.rc_grpo.grid: {error}", file=sys.stderr)
        sys.exit(2)
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    run_all(directory, cells, seeds, settings)
    print(f"all done; python -m experiments.rc_grpo.table {directory} writes the table", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
