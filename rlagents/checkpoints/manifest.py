"""The manifest of a checkpoint: its step, size and SHA-256 of each file; written last, compared before a restore.

What lies on a disk for weeks changes: a flipped bit in a weight restores as silently as the weight. A checkpoint is
read only if every file is the one that was written, none is missing and none was added. Folders that were put back by
hand may be called by each other's steps: a run that went on from there would be another run.
"""

import hashlib
import json
import os
from pathlib import Path

from rlagents.checkpoints.errors import DamagedError
from rlagents.durable import write_durably, writing

MANIFEST = "manifest.json"
_FORMAT = 2
_SHOWN = 3


def write_manifest(folder: Path, step: int) -> None:
    """Put all files of ``folder`` on the disk, then their manifest. Raises durable.WriteError."""
    files = {}
    for name in _names(folder):
        with writing(folder / name), (folder / name).open("rb") as file:
            os.fsync(file.fileno())
            files[name] = _described(folder / name)
    document = {"format": _FORMAT, "step": step, "files": files}
    write_durably(folder / MANIFEST, (json.dumps(document, indent=1) + "\n").encode())


def check_manifest(folder: Path, step: int | None = None) -> None:
    """Raise DamagedError, naming the first files, unless ``folder`` holds what its manifest says and nothing else, of
    ``step`` if that is given."""
    wanted, written = _read(folder)
    if step is not None and written != step:
        raise DamagedError(f"it is the checkpoint of step {written}, under another's name")
    try:
        found = {name: _described(folder / name) for name in _names(folder) if name != MANIFEST}
    except OSError as error:
        raise DamagedError(f"{error.filename} cannot be read: {error.strerror}") from error
    problems = [f"{name} is missing" for name in wanted if name not in found]
    problems += [f"{name} is not one of its files" for name in found if name not in wanted]
    problems += [_difference(name, wanted[name], found[name]) for name in wanted if name in found]
    problems = list(filter(None, problems))
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise DamagedError("; ".join(problems[:_SHOWN]) + more)


def _read(folder: Path) -> tuple[dict[str, dict[str, object]], int]:
    """What was written of each file, and the step."""
    path = folder / MANIFEST
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise DamagedError(f"it has no {MANIFEST}, which is written last") from error
    except (OSError, ValueError) as error:
        raise DamagedError(f"{MANIFEST} cannot be read: {error}") from error
    files = document.get("files") if isinstance(document, dict) else None
    keys = {"format", "step", "files"}
    if not isinstance(files, dict) or document.keys() != keys or document["format"] != _FORMAT:
        raise DamagedError(f"{MANIFEST} is no manifest of format {_FORMAT}")
    return files, document["step"]


def _names(folder: Path) -> list[str]:
    """Of all files under ``folder``, relative to it, in order. Links are files: what they point to is not ours."""
    return sorted(
        (Path(parent) / name).relative_to(folder).as_posix()
        for parent, folders, names in os.walk(folder)
        for name in [*names, *(inner for inner in folders if (Path(parent) / inner).is_symlink())]
    )


def _described(path: Path) -> dict[str, object]:
    if path.is_symlink():
        return {"link": os.readlink(path)}
    with path.open("rb") as file:
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _difference(name: str, wanted: object, found: dict[str, object]) -> str | None:
    if wanted == found:
        return None
    if isinstance(wanted, dict) and wanted.get("bytes") != found.get("bytes"):
        return f"{name} has {found.get('bytes')} bytes, not {wanted.get('bytes')}"
    return f"{name} has other bytes than were written"
