"""What the folder of a run holds, as far as it can be read: lines that are damaged are left out and counted."""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlagents.metrics import files_of, read_lines
from rlagents.metrics.lines import strict_json

TRAINING, HELD_OUT = "training", "held-out"
FILES_OF_GROUPS = {TRAINING: "trajectories.jsonl", HELD_OUT: "held_out.jsonl"}
_FILES_OF_NUMBERS = ("metrics.jsonl", "evaluations.jsonl", "warm_up.jsonl")
_FILES_OF_ROWS = (*_FILES_OF_NUMBERS, "alarms.jsonl")
_CONFIG = "config.json"


class NoRunError(ValueError):
    """A folder is not that of a run, its run has not made a step yet, or a file in it cannot be read."""


@dataclass
class Run:
    """One run.

    Attributes:
      name: what the report calls it.
      folder: where it is.
      config: nested, as ``config.json`` has it; empty where that is missing or damaged.
      metrics, evaluations, warm_up, alarms: rows by file, in order.
      counts: number of groups, by phase.
      damaged: number of lines left out, by file.
    """

    name: str
    folder: Path
    config: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    warm_up: list[dict[str, Any]] = field(default_factory=list)
    alarms: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    damaged: Counter[str] = field(default_factory=Counter)

    def groups(self, phase: str) -> Iterator[dict[str, Any]]:
        """Lines of groups of ``phase``, in order. Damaged ones are left out, and were counted.

        Raises NoRunError where a file cannot be read.
        """
        return _read(self.folder / FILES_OF_GROUPS[phase])


def check_run(folder: Path) -> None:
    """Raise NoRunError for a folder that is not there or has no numbers, and for what is no file but should be."""
    if folder.is_file():
        raise NoRunError(f"{folder} is a file; give the folder that it is in, the --workdir of a run")
    if folder.is_symlink() and not folder.exists():
        raise NoRunError(
            f"{folder} is a link to {os.readlink(folder)}, which is not there; give the --workdir of a run"
        )
    if not folder.is_dir():
        raise NoRunError(f"there is no folder {folder}; give the --workdir of a run")
    with _told(folder):
        logs = {name: files_of(folder / name) for name in (*_FILES_OF_ROWS, *FILES_OF_GROUPS.values())}
    for file in (*(file for files in logs.values() for file in files), folder / _CONFIG):
        if file.exists() and not file.is_file():
            found = "is a folder" if file.is_dir() else "is no file"
            raise NoRunError(f"{file} {found}, where a file that a run writes is expected; move it away")
    if not any(logs[name] for name in _FILES_OF_NUMBERS):
        raise NoRunError(
            f"{folder} has none of {', '.join(_FILES_OF_NUMBERS)}; give the --workdir of a run that has made a step, "
            "or the --output of an evaluation"
        )


def read_run(folder: Path, name: str) -> Run:
    """All of a run but its trajectories, which are read when they are asked for.

    Raises NoRunError as ``check_run`` does, for a folder without a line of numbers, and for a file that cannot be read.
    """
    check_run(folder)
    run = Run(name, folder)
    run.metrics = list(_lines(run, "metrics.jsonl"))
    run.evaluations = list(_lines(run, "evaluations.jsonl"))
    run.warm_up = list(_lines(run, "warm_up.jsonl"))
    if not (run.metrics or run.evaluations or run.warm_up):
        raise NoRunError(
            f"{folder} holds no line that can be read in {', '.join(_FILES_OF_NUMBERS)}; give a run that has made a "
            "step"
        )
    run.alarms = list(_lines(run, "alarms.jsonl"))
    run.config = _config(run)
    run.counts = {phase: sum(1 for _ in _lines(run, file)) for phase, file in FILES_OF_GROUPS.items()}
    return run


def _lines(run: Run, file: str) -> Iterator[dict[str, Any]]:
    """Lines of ``file``; those that cannot be read are counted."""

    def damaged(path: Path, line: int) -> None:
        run.damaged[path.name] += 1

    return _read(run.folder / file, damaged)


def _read(path: Path, damaged: Callable[[Path, int], None] = lambda path, line: None) -> Iterator[dict[str, Any]]:
    with _told(path):
        if files_of(path):
            yield from read_lines(path, damaged)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Say which file the operating system refuses to read."""
    try:
        yield
    except OSError as error:
        remedy = "give a DIR whose files you may read, or, if its run is writing to them, try again"
        raise NoRunError(f"{path} cannot be read: {error.strerror or error}; {remedy}") from error


def _config(run: Run) -> dict[str, Any]:
    path = run.folder / _CONFIG
    with _told(path):
        if not path.exists():
            return {}
        text = path.read_bytes()
    try:
        config = strict_json(text)
    except ValueError:
        config = None
    if isinstance(config, dict):
        return config
    run.damaged[_CONFIG] += 1
    return {}
