"""The folder of a run: whose it is, and the conversations it keeps."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlagents.experiment import Config
from rlagents.rollouts.trajectory import Trajectory


def claim_workdir(workdir: Path, config: Config) -> None:
    """Make the folder and write ``config.json``; a folder of the same config is taken up again.

    Raises ValueError if the folder belongs to a run of another config (naming the keys that differ) or holds files that
    are not a run's: nothing is ever overwritten.
    """
    path = workdir / "config.json"
    wanted = json.loads(config.to_json())
    if path.exists():
        differences = differing_keys(_stored_config(path), wanted)
        if differences:
            raise ValueError(
                f"{workdir} holds a run of another config ({'; '.join(differences)}). Give another --workdir, or the "
                "config of that run."
            )
        return
    if workdir.exists() and (not workdir.is_dir() or any(file.name != _UNFINISHED for file in workdir.iterdir())):
        raise ValueError(f"{workdir} is not empty and holds no config.json of a run; give a new folder as --workdir.")
    workdir.mkdir(parents=True, exist_ok=True)
    # A run that is taken away here leaves the whole config.json or none.
    unfinished = workdir / _UNFINISHED
    unfinished.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
    os.replace(unfinished, path)


def _stored_config(path: Path) -> Mapping[str, Any]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged and does not say whose folder it is ({error}); put the run's config back, or give "
            "another --workdir."
        ) from error
    if not isinstance(stored, Mapping):
        raise ValueError(f"{path} holds a {type(stored).__name__} and no config of a run; give another --workdir.")
    return stored


def differing_keys(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Names and both values of all leaves that differ between two nested configs: ``seed is 1, was 0``."""
    old, new = _leaves(stored), _leaves(wanted)
    different = [key for key in sorted(old | new) if old.get(key, _ABSENT) != new.get(key, _ABSENT)]
    return [f"{key} is {new.get(key, _ABSENT)!r}, was {old.get(key, _ABSENT)!r}" for key in different]


def write_conversations(path: Path, groups: Sequence[Sequence[Trajectory]]) -> None:
    """One JSON line a trajectory. A step that is made again writes its file again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(member.summary()) for group in groups for member in group]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


_UNFINISHED = "config.json.unfinished"


class _Absent:
    def __repr__(self) -> str:
        return "absent"


_ABSENT = _Absent()


def _leaves(tree: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        leaves |= _leaves(value, f"{path}{key}.") if isinstance(value, Mapping) else {path + key: value}
    return leaves
