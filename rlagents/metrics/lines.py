"""Files of JSON lines that survive a kill, continue after a resume and rotate before they grow too large."""

import errno
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from rlagents.durable import writing

MAX_BYTES = 64 << 20
"""Of one file, before the next is begun."""

_MOST_DIGITS = 300
"""Of a whole number: a float holds 308."""

_REWRITTEN = ".rewritten"


def max_bytes_of(max_megabytes: float) -> int:
    """``max_bytes`` of so many times 2**20 bytes."""
    return max(1, int(max_megabytes * 2**20))


class JsonLines:
    """One JSON object a line, each with the number of its ``step``, on disk as soon as it is written.

    The newest lines are in ``NAME.jsonl``. A line that would make it larger than ``max_bytes`` first renames it to
    ``NAME.0001.jsonl`` (then ``NAME.0002.jsonl``, ...) and begins a new one; no line is ever split, and one larger than
    ``max_bytes`` has a file to itself. ``read_lines(path)`` reads all of them in order.
    """

    def __init__(self, path: str | Path, *, first_step: int = 0, max_bytes: int = MAX_BYTES):
        """Continue the files at ``path`` with ``first_step``; create them and their directory if there are none.

        Lines of ``first_step`` and later, and a line cut short, are what a killed run wrote after its last checkpoint;
        they are dropped, so that a run resumed leaves the files of one never interrupted. Steps never fall from line
        to line. A line that cannot be read stays where lines that are kept follow: somebody may mend it. Each file is
        rewritten beside itself and put in place at once, the newest first, so that a kill in between leaves nothing
        that the next start would not drop.

        Raises ValueError for ``max_bytes`` below 1.
        """
        if max_bytes < 1:
            raise ValueError(f"max_bytes is {max_bytes!r}; give a whole number of bytes >= 1")
        self.path, self._max_bytes = Path(path), max_bytes
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _drop_from(self.path, first_step)
            self._file = self._open()

    def write(self, row: Mapping[str, Any]) -> None:
        """Append ``row``, which has its number under ``step``.

        Raises ValueError for a row without a whole number as its step, and for what JSON cannot say, NaN included
        (``json_number`` makes a string of it); nothing is written then. Raises durable.WriteError where the disk is
        full: the lines before are whole.
        """
        step = row.get("step")
        if not isinstance(step, int) or isinstance(step, bool):
            raise ValueError(f"a line has the number of its step under 'step', found {step!r}")
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        with writing(self.path, len(line)):
            if os.fstat(self._file.fileno()).st_nlink == 0:  # else the line would be written to nowhere
                raise FileNotFoundError(errno.ENOENT, "it was removed while it was written to")
            size = self._file.tell()
            if size and size + len(line) > self._max_bytes:
                self._rotate()
            self._file.write(line)
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with writing(self.path):
            self._file.close()

    def __enter__(self) -> "JsonLines":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self) -> BinaryIO:
        file = self.path.open("ab")
        file.seek(0, os.SEEK_END)
        return file

    def _rotate(self) -> None:
        os.fsync(self._file.fileno())  # whoever makes the newest file durable need not know of older ones
        self._file.close()
        older = _rotated(self.path)
        self.path.rename(_numbered(self.path, _number(self.path, older[-1]) + 1 if older else 1))
        self._file = self._open()


def files_of(path: str | Path) -> list[Path]:
    """Return the files that hold the lines of ``path``, the oldest first; empty if there are none."""
    path = Path(path)
    return _rotated(path) + [path] * path.exists()


def read_lines(path: str | Path, damaged: Callable[[Path, int], None] = lambda file, line: None) -> Iterator[Any]:
    """Yield the objects at ``path`` in order, those of rotated files first.

    What is no object with a step (a last line cut short) is left out, and ``damaged(file, line)`` called with its
    place, lines counted from 1. Raises FileNotFoundError if there is no file.
    """
    files = files_of(path)
    if not files:
        raise FileNotFoundError(f"there is no {path}")
    return _read(files, damaged)


def json_number(name: str, value: Any) -> float | int | str:
    """Return ``value`` as JSON can say it. What is not finite becomes ``"nan"``, ``"inf"`` or ``"-inf"``: JSON knows
    no such numbers, and null would hide which it was.

    Raises ValueError, naming ``name``, for what is not one number.
    """
    if isinstance(value, str) or getattr(value, "ndim", 0) != 0:
        raise ValueError(f"metric {name!r} must be one number, found {value!r}")
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, bool):
        return int(number)
    if not isinstance(number, (int, float)):
        raise ValueError(f"metric {name!r} must be one number, found {value!r}")
    return number if math.isfinite(number) else str(float(number))


def _read(files: list[Path], damaged: Callable[[Path, int], None]) -> Iterator[Any]:
    for file in files:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                row = _parsed(line)
                if row is None:
                    damaged(file, number)
                else:
                    yield row


def strict_json(text: str | bytes) -> Any:
    """Return what a text of ours says. Raises ValueError for all else, whatever it is.

    Refused are also NaN and infinities (what is not finite is written as text), numbers that no float can hold, and
    what is nested beyond all measure.
    """
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite, parse_int=_whole)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is beyond all floats")
    return value


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"{text[:20]}... has {len(text)} digits")
    return int(text)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        row = strict_json(line)
        return row if type(row["step"]) is int and abs(row["step"]) < 2**53 else None
    except (ValueError, KeyError, TypeError):
        return None


def _drop_from(path: Path, first_step: int) -> None:
    for file in reversed(files_of(path)):
        if _kept_before(file, first_step):
            if file != path:
                file.rename(path)  # it is the newest now, and may be continued
            return


def _kept_before(file: Path, first_step: int) -> bool:
    """Leave in ``file`` what is before ``first_step``, or remove it and return False if that is nothing."""
    rewritten, anything, unreadable = file.with_name(file.name + _REWRITTEN), False, []
    with file.open("rb") as lines, rewritten.open("wb") as kept:
        for line in lines:
            row = _parsed(line)
            if row is None:
                unreadable.append(line)
            elif row["step"] < first_step:
                kept.writelines([*unreadable, line if line.endswith(b"\n") else line + b"\n"])
                anything, unreadable = True, []
        kept.flush()
        os.fsync(kept.fileno())
    if anything:
        rewritten.replace(file)
    else:
        rewritten.unlink()
        file.unlink()
    return anything


def _rotated(path: Path) -> list[Path]:
    numbered = re.compile(re.escape(path.stem) + r"\.(\d{4,})" + re.escape(path.suffix))
    there = path.parent.iterdir() if path.parent.is_dir() else ()
    found = [file for file in there if numbered.fullmatch(file.name)]
    return sorted(found, key=lambda file: _number(path, file))


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}.{number:04d}{path.suffix}")


def _number(path: Path, rotated: Path) -> int:
    return int(rotated.name[len(path.stem) + 1 : len(rotated.name) - len(path.suffix)])
