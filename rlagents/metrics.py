"""``metrics.jsonl``: what a run writes down, one JSON line a step."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np


class MetricsWriter:
    """A file with one object a step, flushed as it is written, readable by any JSON parser."""

    def __init__(self, path: str | Path, *, first_step: int = 0):
        """Continue the file at ``path`` with ``first_step``; create it and its directory if there is none.

        Lines of ``first_step`` and later, and a line cut short, are what a killed run wrote after its last checkpoint;
        they are dropped, so that a run resumed leaves the file of one never interrupted.
        """
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            kept = [line for line in self.path.read_text(encoding="utf-8").splitlines() if _step_of(line) < first_step]
            rewritten = self.path.with_name(self.path.name + ".rewritten")
            rewritten.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
            os.replace(rewritten, self.path)
        self._file = self.path.open("a", encoding="utf-8")

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append ``{"step": step, **values}``. What is not finite becomes a string (``"nan"``, ``"inf"``, ``"-inf"``):
        JSON knows no such numbers, and null would hide which it was.

        Raises ValueError for a value that is no number or for the name ``step``.
        """
        if "step" in values:
            raise ValueError("a metric may not be called 'step': that is the number of the line")
        line = {"step": int(step)} | {name: _json_number(name, value) for name, value in values.items()}
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def read_metrics(path: str | Path) -> list[dict[str, float]]:
    """Read a ``metrics.jsonl`` back, strings of non-finite values as floats; a last line cut short is left out."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines if _step_of(line) < math.inf]
    return [{name: float(v) if isinstance(v, str) else v for name, v in row.items()} for row in rows]


def _json_number(name: str, value: float) -> float | int | str:
    if isinstance(value, str) or np.ndim(value) != 0:
        raise ValueError(f"metric {name!r} must be one number, found {value!r}")
    number = np.asarray(value).item()
    if isinstance(number, bool):
        return int(number)
    return number if math.isfinite(number) else str(float(number))


def _step_of(line: str) -> float:
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf
