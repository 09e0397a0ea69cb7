"""What can become of a checkpoint's files, and what happens then; ``python -m tests.checkpoint_faults`` prints it."""

import contextlib
import io
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from rlagents.checkpoints import CheckpointError, Checkpoints, RunRecord
from rlagents.first_weights import resumed
from rlagents.versions import code_versions
from tests import toy_policy
from tests.test_checkpoints import new_state, step_and_shardings, target

CONFIG = {"seed": 5, "rl": {"steps": 3}}
_KINDS = (
    ("state/d/", "the arrays"),
    ("state/ocdbt.process_0/", "the arrays as each process wrote them"),
    ("state/", "what describes the arrays"),
    ("record.json", "record.json"),
    ("pending.json", "pending.json"),
    ("manifest.json", "manifest.json"),
)


class Stored:
    """Stands for a config: what is stored of one is all that is looked at."""

    def __init__(self, values: dict[str, Any]):
        self.values = values

    def to_json(self) -> str:
        return json.dumps(self.values)


def record(step: int, **changes: Any) -> RunRecord:
    """As a run of ``CONFIG`` writes it."""
    run = {"elapsed_seconds": 1.0, "versions": code_versions()}
    return RunRecord(**{"position": {"prompts": step}, "config": CONFIG, "run": run} | changes)


def two_checkpoints(directory: Path) -> Path:
    """Of steps 1 and 2, the second with a pending rollout."""
    _, shardings = step_and_shardings()
    with Checkpoints(directory) as checkpoints:
        checkpoints.save(1, new_state(shardings), record(1))
        checkpoints.save(2, new_state(shardings, 1), record(2, pending={"groups": [[1.5]]}))
    return directory


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


def table(folder: Path) -> list[tuple[str, str, str]]:
    """Fault, which file, what happened: each one really made, in copies under ``folder``."""
    whole = two_checkpoints(folder / "whole")
    names, found = files_of(whole / "2"), {}
    for damage, inflict in DAMAGES.items():
        for name in names:
            directory = _copy(whole)
            if inflict(directory / "2" / name):
                kind = next(kind for beginning, kind in _KINDS if name.startswith(beginning))
                found.setdefault((damage, kind), []).append(_what_happens(directory))
    rows = [(damage, kind, _the_same(happened)) for (damage, kind), happened in found.items()]

    (more := _copy(whole) / "2" / "state" / "more").write_bytes(b"")
    rows.append(("a file too many", "any", _what_happens(more.parents[2])))

    for count, fault in (
        (0, "nothing written yet"),
        (len(names) // 2, "half-written"),
        (len(names), "all but its name"),
    ):
        shutil.copytree(whole / "2", (directory := _copy(whole)) / "writing-3")
        for name in names[count:]:
            (directory / "writing-3" / name).unlink()
        rows.append((f"taken away while writing: {fault}", "-", _what_happens(directory)))
    (directory := _copy(whole)).joinpath("1").rename(directory / "deleting-1")
    rows.append(("taken away while deleting", "-", _what_happens(directory)))

    directory = _copy(whole)
    for step in ("1", "2"):
        DAMAGES["truncated"](directory / step / "record.json")
    rows.append(("every checkpoint damaged", "any", _what_happens(directory)))
    directory = _copy(whole)
    for step, other in (("1", "between"), ("2", "1"), ("between", "2")):
        (directory / step).rename(directory / other)
    rows.append(("folders that are called by each other's steps", "-", _what_happens(directory)))
    (directory := _copy(whole)).joinpath("2").rename(directory / "damaged-2")
    shutil.rmtree(directory / "1")
    rows.append(("the only one was renamed before", "-", _what_happens(directory)))
    directory = _copy(whole)
    directory.with_name("checkpoints.begun").touch()
    for step in ("1", "2"):
        shutil.rmtree(directory / step)
    rows.append(("all of them removed", "-", _what_happens(directory)))
    rows.append(("of another config", "-", _what_happens(_copy(whole), config=CONFIG | {"seed": 6})))
    wider = toy_policy.init_params() | {"mix": jnp.zeros((8, 16))}
    rows.append(("of another decoder", "-", _what_happens(_copy(whole), params=wider)))
    return rows


def _copy(whole: Path) -> Path:
    return shutil.copytree(whole, Path(tempfile.mkdtemp(dir=whole.parent)) / "checkpoints")


def _what_happens(directory: Path, *, config: dict[str, Any] = CONFIG, params: Any = None) -> str:
    _, shardings = step_and_shardings()
    before, told = set(directory.iterdir()), io.StringIO()
    try:
        with Checkpoints(directory) as checkpoints, contextlib.redirect_stderr(told):
            found = resumed(checkpoints, Stored(config))
            assert found is not None, "a fresh run"
            checkpoints.restore(target(shardings, params=params), found.step)
    except CheckpointError:
        return (
            "refused; the run ends with exit code 2" if set(directory.iterdir()) == before else "refused, and changed"
        )
    names = {path.name for path in directory.iterdir()}
    if found.step == 1 and names == {"1", "damaged-2"} and "WARNING" in told.getvalue():
        return "refused and renamed; the run goes back to the one before, and says so"
    if found.step == 2 and names <= {"1", "2"} and not told.getvalue():
        return "ignored and removed; the run goes on from the newest"
    return f"goes on from step {found.step} with {sorted(names)}"


def _the_same(happened: list[str]) -> str:
    return happened[0] if len(set(happened)) == 1 else " or ".join(sorted(set(happened)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print("| fault | file | what happens |\n|---|---|---|")
        for row in table(Path(scratch)):
            print(f"| {' | '.join(row)} |")
