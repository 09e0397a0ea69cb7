"""The names of checkpoints: a folder called by its step is complete, and gets or loses that name in one move.

12           complete
writing-14   being written, or left by a run that was taken away meanwhile
deleting-8   on its way out
damaged-10   found damaged, and kept for a person to look at

Beside the directory, a file that ends in ``.begun`` says that there was a complete one: a run whose checkpoints are
gone is told from one that was taken away before its first.
"""

import os
import shutil
import time
from pathlib import Path

from rlagents.durable import sync_folder, write_durably, writing

_WRITING, _DELETING, _DAMAGED = "writing-", "deleting-", "damaged-"
_BEGUN = ".begun"
_LOOKS, _LOOKS_WITHOUT, _LOOK_SECONDS = 100, 3, 0.05


def steps_in(directory: Path) -> list[int]:
    """Steps of complete checkpoints, oldest first."""
    return sorted(int(name) for name in _names(directory) if name.isdecimal() and str(int(name)) == name)


def damaged_in(directory: Path) -> list[str]:
    """Names of the folders that were set aside."""
    return sorted(name for name in _names(directory) if name.startswith(_DAMAGED))


def writing_name(directory: Path, step: int) -> Path:
    """Where the checkpoint of ``step`` lies until it is complete."""
    return directory / f"{_WRITING}{step}"


def begin(directory: Path, step: int) -> Path:
    """A new empty folder to write the checkpoint of ``step`` in. Raises durable.WriteError."""
    folder = writing_name(directory, step)
    with writing(folder):
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
    return folder


def give_up(directory: Path, step: int) -> None:
    """Remove what was written of ``step``, as far as can be; ``tidy`` removes what is left.

    Threads of Orbax that have not heard of the failure may make a file, or the folder itself, while it is removed.
    """
    folder, gone = writing_name(directory, step), 0
    for _ in range(_LOOKS):
        gone = 0 if folder.exists() else gone + 1
        if gone == _LOOKS_WITHOUT:
            return
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(_LOOK_SECONDS)


def complete(folder: Path) -> Path:
    """Give a folder of ``begin`` its name. Raises durable.WriteError."""
    named = folder.with_name(folder.name.removeprefix(_WRITING))
    with writing(named):
        # Names of files first, the name of the whole last.
        for parent, _, _ in os.walk(folder, topdown=False):
            sync_folder(Path(parent))
        os.rename(folder, named)
        sync_folder(named.parent)
    return named


def note_begun(directory: Path) -> None:
    """Write down that there is a complete checkpoint. Raises durable.WriteError."""
    if not begun(directory):
        write_durably(_mark(directory), b"There was a complete checkpoint: without one, the run is not begun anew.\n")


def begun(directory: Path) -> bool:
    """Whether there ever was a complete checkpoint."""
    return _mark(directory).exists()


def delete(directory: Path, step: int) -> None:
    """Take a checkpoint away: its name first, at once, then its files. Raises durable.WriteError."""
    trash = directory / f"{_DELETING}{step}"
    with writing(trash):
        if trash.exists():
            shutil.rmtree(trash)
        os.rename(directory / str(step), trash)
        shutil.rmtree(trash)


def set_aside(directory: Path, step: int) -> Path:
    """Take its name from a damaged checkpoint, and nothing else; returns where it lies. Raises durable.WriteError."""
    number, aside = 1, directory / f"{_DAMAGED}{step}"
    while aside.exists():
        number, aside = number + 1, directory / f"{_DAMAGED}{step}-{number + 1}"
    with writing(aside):
        os.rename(directory / str(step), aside)
        sync_folder(directory)
    return aside


def tidy(directory: Path) -> None:
    """Remove what runs that were taken away have left half-written or half-deleted. Raises durable.WriteError."""
    for name in _names(directory):
        if name.startswith((_WRITING, _DELETING)):
            with writing(directory / name):
                shutil.rmtree(directory / name)


def _mark(directory: Path) -> Path:
    return directory.with_name(directory.name + _BEGUN)


def _names(directory: Path) -> list[str]:
    return [entry.name for entry in os.scandir(directory) if entry.is_dir()] if directory.is_dir() else []
