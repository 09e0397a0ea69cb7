"""The folder of a run: whose it is, and who works in it."""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlagents.durable import UNFINISHED, write_durably, writing
from rlagents.experiment import Config

_CONFIG, _LOCK = "config.json", "lock"
_ARGUMENT = "experiment.argument"
"""Of ``get_config``: it is all in the config that it gave, whether it was said or is the default."""


@contextlib.contextmanager
def claimed(workdir: Path, config: Config) -> Iterator[None]:
    """:func:`claim_workdir`, and nobody else works there meanwhile; the lock goes with the process, however it ends.

    A start that fails before it has written anything else leaves no folder: the next may be of another config. Raises
    ValueError as ``claim_workdir`` does, and where another process works there; WriteError where nothing can be
    written. Nothing is changed then.
    """
    taken_up = _check_ownership(workdir, plain(config))
    made = not workdir.exists()
    with _locked(workdir):
        try:
            claim_workdir(workdir, config)
            yield
        except BaseException:
            if not taken_up:
                _give_up(workdir, made)
            raise


def _give_up(workdir: Path, made: bool) -> None:
    """Remove what a start has made, if that holds nothing yet: its config, its lock and files without a byte."""
    files = list(workdir.iterdir()) if workdir.is_dir() else []
    if all(file.is_file() and (file.name in (_CONFIG, _LOCK) or not file.stat().st_size) for file in files):
        for file in files:
            file.unlink()
        if made and workdir.is_dir():
            workdir.rmdir()


def claim_workdir(workdir: Path, config: Config) -> None:
    """Make the folder and write ``config.json``; a folder of the same config is taken up again.

    Raises ValueError if the folder belongs to a run of another config (naming the keys that differ) or holds files that
    are not a run's: nothing is ever overwritten. Raises WriteError where nothing can be written.
    """
    if _check_ownership(workdir, plain(config)):
        return
    with writing(workdir):
        workdir.mkdir(parents=True, exist_ok=True)
    # A run that is taken away here leaves the whole config.json or none.
    write_durably(workdir / _CONFIG, (json.dumps(plain(config), indent=2) + "\n").encode())


def is_of(workdir: Path, config: Config) -> bool:
    """Whether the folder holds a run of this config. Raises ValueError as ``claim_workdir`` does."""
    return _check_ownership(workdir, plain(config))


def _check_ownership(workdir: Path, wanted: Mapping[str, Any]) -> bool:
    """Whether the folder is this run's already; if it is not, it holds nothing that a run could overwrite."""
    path = workdir / _CONFIG
    if workdir.is_symlink() and not workdir.exists():
        raise ValueError(f"{workdir} is a link to {os.readlink(workdir)}, which is not there; give a folder.")
    if path.exists():
        differences = differing_keys(_stored_config(path), wanted)
        if differences:
            raise ValueError(
                f"{workdir} holds a run of another config ({'; '.join(differences)}). Give another --workdir, or the "
                "config of that run."
            )
        return True
    ours = {_LOCK, _CONFIG + UNFINISHED}
    if workdir.exists() and (not workdir.is_dir() or any(file.name not in ours for file in workdir.iterdir())):
        raise ValueError(f"{workdir} is not empty and holds no config.json of a run; give a new folder as --workdir.")
    return False


@contextlib.contextmanager
def _locked(workdir: Path) -> Iterator[None]:
    """One process works in ``workdir``; its file ``lock`` says which."""
    path = workdir / _LOCK
    with writing(path):
        workdir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = " ".join(file.read(200).split()) or "another process"
            raise ValueError(
                f"{workdir} is being worked in by {holder}; wait until it has ended, or give another --workdir."
            ) from error
        if os.fstat(file.fileno()).st_nlink == 0:  # its holder was refused and took the folder with it
            raise ValueError(f"{workdir} was just given up by another process; start again.")
        with contextlib.suppress(OSError):  # a full disk; what says so is the first file that matters
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield


def plain(config: Config) -> Mapping[str, Any]:
    """A config as it is stored: dictionaries, and tuples are lists."""
    return json.loads(config.to_json())


def _stored_config(path: Path) -> Mapping[str, Any]:
    try:
        stored = read_json(path)
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged and does not say whose folder it is ({error}); put the run's config back, or give "
            "another --workdir."
        ) from error
    if not isinstance(stored, Mapping):
        raise ValueError(f"{path} holds a {type(stored).__name__} and no config of a run; give another --workdir.")
    return stored


def read_json(path: Path) -> Any:
    """What a ``config.json`` says. Raises ValueError, saying why, for what cannot be read or is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def differing_keys(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Names and both values of all leaves that differ between two nested configs: ``seed is 1, was 0``.

    Which argument a config file was given is none of them: what it gave is compared.
    """
    old, new = (_leaves(config) for config in (stored, wanted))
    for leaves in (old, new):
        leaves.pop(_ARGUMENT, None)
    different = [key for key in sorted(old | new) if old.get(key, _ABSENT) != new.get(key, _ABSENT)]
    return [f"{key} is {new.get(key, _ABSENT)!r}, was {old.get(key, _ABSENT)!r}" for key in different]


class _Absent:
    def __repr__(self) -> str:
        return "absent"


_ABSENT = _Absent()


def _leaves(tree: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        leaves |= _leaves(value, f"{path}{key}.") if isinstance(value, Mapping) else {path + key: value}
    return leaves
