"""``metrics.jsonl``: what a run writes down, one JSON line a step."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlagents.metrics.lines import MAX_BYTES, JsonLines, json_number, read_lines


class MetricsWriter:
    """A file with one object of numbers a step, flushed as it is written, readable by any JSON parser; it rotates."""

    def __init__(self, path: str | Path, *, first_step: int = 0, max_bytes: int = MAX_BYTES):
        """Continue the file at ``path`` with ``first_step``, as ``JsonLines`` does; create it if there is none."""
        self.path = Path(path)
        self._lines = JsonLines(path, first_step=first_step, max_bytes=max_bytes)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Append ``{"step": step, **values}``. What is not finite becomes a string (``"nan"``, ``"inf"``, ``"-inf"``).

        Raises ValueError for a value that is no number or for the name ``step``.
        """
        if "step" in values:
            raise ValueError("a metric may not be called 'step': that is the number of the line")
        self._lines.write({"step": int(step)} | {name: json_number(name, value) for name, value in values.items()})

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def read_metrics(path: str | Path) -> list[dict[str, float]]:
    """Read a ``metrics.jsonl`` back, strings of non-finite values as floats; a last line cut short is left out."""
    return list(each_metrics(path))


def each_metrics(path: str | Path) -> Iterator[dict[str, float]]:
    """Yield what ``read_metrics`` returns, a line at a time."""
    for row in read_lines(path):
        yield {name: float(value) if isinstance(value, str) else value for name, value in row.items()}
