"""Runs of the training program that are taken away at chosen moments and started again until they are finished."""

import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from rlagents.metrics.lines import read_lines
from tests.effort import draws

ROOT = Path(__file__).resolve().parents[1]
TIMED = ("seconds", "tokens_per_second")
LOGS = tuple(f"{name}.jsonl" for name in ("warm_up", "metrics", "evaluations", "alarms", "trajectories", "held_out"))
_LOOK_SECONDS = 0.0005
_MOST_STARTS = 60

_XLA_FLAGS = "--xla_backend_optimization_level=0" if draws(1) == 1 else ""
"""In a usual run of the suite, programs are compiled in half the time."""

Moment = Callable[[Path, float], bool]
"""``(workdir, seconds since the start) -> is it now?``, asked some thousand times a second."""


class Ended(NamedTuple):
    """How one process ended."""

    code: int
    output: str


def command(variant: str, workdir: Path, cache: Path, *options: str) -> list[str]:
    """Words for the training program."""
    config = f"--config=tests/tiny_run.py:{variant}"
    return [config, f"--workdir={workdir}", f"--config.compilation_cache={cache}", *options]


class Starter:
    """Starts the training program, on one device, one process at a time; ``close`` it. See ``tests/zygote.py``."""

    def __init__(self, folder: Path):
        self._output = folder / "output.txt"
        variables = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), "XLA_FLAGS": _XLA_FLAGS}
        words = [sys.executable, "-m", "tests.zygote"]
        self._zygote = subprocess.Popen(
            words, cwd=ROOT, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def run_until(self, words: list[str], workdir: Path, moment: Moment, strike: Callable[[int], None]) -> Ended:
        """To the ``moment``, at which ``strike(process id)`` is called, and on to its end."""
        self._say([str(self._output), *words])
        process, start = self._hear(), time.monotonic()
        while not self._has_ended(_LOOK_SECONDS):
            if moment(workdir, time.monotonic() - start):
                strike(process)
                break
        assert self._has_ended(600), f"it hangs:\n{self._output.read_text()}"
        return Ended(self._hear(), self._output.read_text())

    def run(self, words: list[str]) -> Ended:
        """To its end."""
        return self.run_until(words, Path(), lambda workdir, elapsed: False, killed)

    def to_the_end(self, words: list[str], workdir: Path, moments: Iterator[Moment]) -> list[Ended]:
        """Killed at each of the ``moments`` and started again until all is done; how each process ended."""
        ended = []
        for _ in range(_MOST_STARTS):
            moment = next(moments, None)
            ended.append(self.run(words) if moment is None else self.run_until(words, workdir, moment, killed))
            if ended[-1].code != -signal.SIGKILL:
                return ended
        raise AssertionError(f"{_MOST_STARTS} starts did not finish the run")

    def close(self) -> None:
        """End the zygote."""
        assert self._zygote.stdin is not None
        self._zygote.stdin.close()
        self._zygote.wait(60)

    def _say(self, request: list[str]) -> None:
        assert self._zygote.stdin is not None
        self._zygote.stdin.write(json.dumps(request).encode() + b"\n")

    def _hear(self) -> int:
        assert self._zygote.stdout is not None
        return int(self._zygote.stdout.readline())

    def _has_ended(self, seconds: float) -> bool:
        return bool(select.select([self._zygote.stdout], [], [], seconds)[0])


def killed(process: int) -> None:
    """Taken away."""
    os.kill(process, signal.SIGKILL)


def asked(number: signal.Signals) -> Callable[[int], None]:
    """Asked to stop."""
    return lambda process: os.kill(process, number)


def no_more_than(num_bytes: int) -> Callable[[int], None]:
    """No file may grow beyond so many bytes: as on a full disk, the next write fails, and those after it."""

    def strike(process: int) -> None:
        _, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (num_bytes, hard))

    return strike


def after(seconds: float) -> Moment:
    """So long after the start."""
    return lambda workdir, elapsed: elapsed > seconds


def there(pattern: str) -> Moment:
    """As soon as a file or folder of that name is there that was not when it was first asked for."""
    before: set[Path] | None = None

    def moment(workdir: Path, elapsed: float) -> bool:
        nonlocal before
        found = set(workdir.glob(pattern))
        before = found if before is None else before
        return bool(found - before)

    return moment


def lines_more(name: str, count: int, seconds: float = 0.0) -> Moment:
    """``seconds`` after a log has ``count`` lines more than when it was first asked for."""
    before, since = None, None

    def moment(workdir: Path, elapsed: float) -> bool:
        nonlocal before, since
        path = workdir / name
        found = path.read_bytes().count(b"\n") if path.exists() else 0
        before = found if before is None else min(before, found)  # what is behind the checkpoint is dropped
        if since is None and found >= before + count:
            since = elapsed
        return since is not None and elapsed >= since + seconds

    return moment


def random_moments(seed: str, step_seconds: float) -> Iterator[Moment]:
    """Inside a step, a rollout, an evaluation, a checkpoint write: named points, most with a delay; without end."""
    source = random.Random(seed)
    points = [
        lambda: lines_more("metrics.jsonl", 1, source.uniform(0, step_seconds)),  # between two steps' ends
        lambda: there("checkpoints/writing-*"),  # while a checkpoint is being written
        lambda: there("checkpoints/writing-*/state"),  # its arrays are there, its manifest perhaps not
        lambda: lines_more("evaluations.jsonl", 1, source.uniform(0, step_seconds)),
        lambda: there("checkpoints/[0-9]*"),  # just complete; the one before not yet deleted
        lambda: after(source.uniform(0.5, 3.0)),  # wherever that is: while it starts, while programs are read
    ]
    while True:
        yield from (point() for point in source.sample(points, len(points)))


def untimed(path: Path) -> list[dict[str, Any]] | None:
    """The lines of a log without what depends on how long things took; None where there is no such log."""
    if not path.exists():
        return None
    return [{name: v for name, v in row.items() if not name.startswith(TIMED)} for row in read_lines(path)]


def final_state(workdir: Path) -> dict[str, bytes]:
    """Every array of the newest checkpoint, by its path: weights, moments, method state, keys, counters."""
    newest = max(int(path.name) for path in (workdir / "checkpoints").iterdir() if path.name.isdecimal())
    folder = workdir / "checkpoints" / str(newest)
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        tree = checkpointer.metadata(folder / "state").item_metadata.tree
        as_numpy = jax.tree.map(
            lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree, is_leaf=lambda x: hasattr(x, "dtype")
        )
        state = checkpointer.restore(folder / "state", args=ocp.args.PyTreeRestore(restore_args=as_numpy))
    leaves = jax.tree_util.tree_leaves_with_path(state)
    arrays = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
    return {name: f"{array.dtype}{array.shape}".encode() + array.tobytes() for name, array in arrays.items()}


def position(workdir: Path, step: int) -> dict[str, int]:
    """Where the data streams stand in a checkpoint."""
    return json.loads((workdir / "checkpoints" / str(step) / "record.json").read_text())["position"]


def assert_same_run(workdir: Path, whole: Path) -> None:
    """Nothing that a run leaves tells that it was interrupted."""
    for name in LOGS:
        assert untimed(workdir / name) == untimed(whole / name), name
    state, wanted = final_state(workdir), final_state(whole)
    assert state.keys() == wanted.keys()
    assert [name for name in wanted if state[name] != wanted[name]] == []
