"""What can become of the files of a checkpoint, and what happens then: ``python -m tests.checkpoint_faults``."""

from pathlib import Path


def files_of(folder: Path) -> list[str]:
    """Names of all files, relative, in order."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _truncated(path: Path) -> bool:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return bool(data)


def _emptied(path: Path) -> bool:
    data = path.read_bytes()
    path.write_bytes(b"")
    return bool(data)


def _removed(path: Path) -> bool:
    path.unlink()
    return True


def _one_bit_flipped(path: Path) -> bool:
    data = bytearray(path.read_bytes())
    if data:
        data[len(data) // 3] ^= 1 << len(data) % 8
    path.write_bytes(data)
    return bool(data)


DAMAGES = {"truncated": _truncated, "emptied": _emptied, "removed": _removed, "one bit flipped": _one_bit_flipped}
"""``path -> is anything different?``"""
