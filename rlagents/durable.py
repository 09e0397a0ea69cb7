"""Files that are whole or not there, whatever happens while they are written, and errors that say which file it was."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

UNFINISHED = ".unfinished"
"""Ends the name of a file that is being written; what is left of one after a kill is overwritten by the next."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_IN_THE_WAY = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST)
_LOCKED = (errno.EROFS, errno.EACCES, errno.EPERM)


class WriteError(OSError):
    """Something could not be written; says what, and what to do."""

    def __str__(self) -> str:
        return str(self.strerror)


@contextlib.contextmanager
def writing(path: Path, num_bytes: int | None = None) -> Iterator[None]:
    """Name ``path``, and how many bytes were to be written if that is known, in what the operating system refuses.

    Raises WriteError instead of OSError.
    """
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        wanted = "" if num_bytes is None else f", {num_bytes:,} bytes wanted"
        raise WriteError(
            error.errno, f"{path} cannot be written ({os.strerror(error.errno or errno.EIO)}{wanted}); {_remedy(error)}"
        ) from error


def write_durably(path: Path, data: bytes) -> None:
    """Write ``data``, replacing what was there: ``path`` holds the old bytes or the new ones, even after a power cut.

    The bytes go to ``NAME.unfinished`` beside it and are on the disk before that is renamed. Raises WriteError, with
    ``path`` as it was.
    """
    unfinished = path.with_name(path.name + UNFINISHED)
    with writing(path, len(data)):
        try:
            with unfinished.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
        sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Put on the disk what was written to ``path``, if it exists. Raises WriteError."""
    if path.exists():
        with writing(path), path.open("rb") as file:
            os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Put the names in ``folder`` on the disk: a file is there after a power cut only if its folder says so."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def of_the_disk(error: BaseException) -> bool:
    """Whether the disk, or what lies there, is to blame, and not the code: something could not be written, or the disk
    is full, may not be written to, or fails."""
    return isinstance(error, WriteError) or (
        isinstance(error, OSError) and error.errno in (*_FULL, *_LOCKED, errno.EIO)
    )


def _remedy(error: OSError) -> str:
    if error.errno in _FULL:
        return "make room, and start again: what was written before is whole."
    if error.errno in _LOCKED:
        return "give a folder that this user may write to."
    if error.errno in _IN_THE_WAY:
        return "move away what lies there, and start again: what was written before is whole."
    return "see to the disk, and start again: what was written before is whole."
