"""What the folder of a run holds, as far as it can be read: lines that are damaged are left out and counted."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlagents.metrics import files_of, read_lines
from rlagents.metrics.lines import strict_json

TRAINING, HELD_OUT = "training", "held-out"
FILES_OF_GROUPS = {TRAINING: "trajectories.jsonl", HELD_OUT: "held_out.jsonl"}


class NoRunError(ValueError):
    """A folder is not that of a run, or its run has not made a step yet."""


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
        """Lines of groups of ``phase``, in order. Damaged ones are left out, and were counted."""
        path = self.folder / FILES_OF_GROUPS[phase]
        return read_lines(path) if files_of(path) else iter(())


def check_run(folder: Path) -> None:
    """Raise NoRunError for a folder that is not there or has no metrics."""
    if not folder.is_dir():
        raise NoRunError(f"there is no folder {folder}; give the --workdir of a run")
    if not files_of(folder / "metrics.jsonl"):
        raise NoRunError(f"{folder} has no metrics.jsonl; give the --workdir of a run that has made a step")


def read_run(folder: Path, name: str) -> Run:
    """All of a run but its trajectories, which are read when they are asked for.

    Raises NoRunError for a folder that is not there or has no line of metrics.
    """
    check_run(folder)
    run = Run(name, folder)
    run.metrics = list(_lines(run, "metrics.jsonl"))
    if not run.metrics:
        raise NoRunError(f"{folder / 'metrics.jsonl'} holds no line that can be read; give a run that has made a step")
    run.evaluations = list(_lines(run, "evaluations.jsonl"))
    run.warm_up = list(_lines(run, "warm_up.jsonl"))
    run.alarms = list(_lines(run, "alarms.jsonl"))
    run.config = _config(run)
    run.counts = {phase: sum(1 for _ in _lines(run, file)) for phase, file in FILES_OF_GROUPS.items()}
    return run


def _lines(run: Run, file: str) -> Iterator[dict[str, Any]]:
    """Lines of ``file``; those that cannot be read are counted."""

    def damaged(path: Path, line: int) -> None:
        run.damaged[path.name] += 1

    path = run.folder / file
    return read_lines(path, damaged) if files_of(path) else iter(())


def _config(run: Run) -> dict[str, Any]:
    try:
        config = strict_json((run.folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        config = None
    if isinstance(config, dict):
        return config
    run.damaged["config.json"] += 1
    return {}
