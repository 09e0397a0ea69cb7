"""A directory of checkpoints: saved in the background, complete or not there, verified before they are read.

Orbax copies the arrays to the host, which is all that a step waits for, and writes them while training goes on. When
they are written, a thread adds the record, then the manifest, then gives the folder its name. Only then is an older
checkpoint deleted.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import jax
from jax.experimental import multihost_utils

from rlagents.checkpoints import arrays, folders
from rlagents.checkpoints.errors import CheckpointError, DamagedError, reading, said
from rlagents.checkpoints.manifest import check_manifest, write_manifest
from rlagents.checkpoints.record import RunRecord, read_metrics, read_record, write_record
from rlagents.checkpoints.retention import kept
from rlagents.learner.state import TrainState
from rlagents.types import Params

T = TypeVar("T")


class Newest(NamedTuple):
    """The newest checkpoint that is whole, and what is wrong with the newer ones, by step."""

    step: int | None
    damaged: dict[int, str]


class Checkpoints:
    """A directory of checkpoints, one a step. Use as a context manager, or ``close`` it.

    Nothing is written, removed or renamed but by ``save``, ``tidy`` and ``set_aside``.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        keep_last: int = 3,
        keep_best: int = 0,
        best_metric: str = "success",
        keep_every_steps: int | None = None,
    ):
        """Keep the ``keep_last`` newest, the ``keep_best`` with the highest ``record.metrics[best_metric]``, and for
        good those whose step is a multiple of ``keep_every_steps``.

        Raises ValueError unless the first and the last are positive, and ``keep_best`` is not negative.
        """
        if keep_last < 1 or keep_best < 0 or (keep_every_steps is not None and keep_every_steps < 1):
            raise ValueError(
                f"keep_last={keep_last} and keep_every_steps={keep_every_steps} must be 1 or more, "
                f"keep_best={keep_best} 0 or more"
            )
        self.directory = Path(directory).absolute()
        self._keep = {"keep_last": keep_last, "keep_best": keep_best, "keep_every_steps": keep_every_steps}
        self._best_metric = best_metric
        self._writer: arrays.ArrayWriter | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._under_way: Future[None] | None = None
        self._verified: set[int] = set()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for what is being written and release the directory. Raises CheckpointError as ``wait`` does."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()
            self._end_writer()

    def steps(self) -> list[int]:
        """Steps of all complete checkpoints, oldest first, the one being written included: it is waited for."""
        self.wait()
        return folders.steps_in(self.directory)

    def latest_step(self) -> int | None:
        """Step of the newest complete checkpoint; None where there is none. Whether it is whole, ``newest`` tells."""
        return max(self.steps(), default=None)

    def save(self, step: int, state: TrainState | Mapping[str, Params], record: RunRecord) -> None:
        """Write a checkpoint of ``step``; returns once the arrays are copied. All processes call this together.

        ``state`` may be ``{"params": ...}``, of which ``params`` alone can be read again.

        What was being written is waited for first. Raises CheckpointError if that failed, and if ``step`` was saved
        before: a run that repeats a step has lost its place.
        """
        if step in self.steps():
            raise CheckpointError(f"{self.directory} already holds step {step}; restore it or move it away")
        folder = folders.writing_name(self.directory, step)
        with self._writing(step):
            if _first_process():
                folders.begin(self.directory, step)
            self._writer = self._writer or arrays.ArrayWriter()
            self._writer.begin(folder, state)
        self._under_way = self._thread.submit(self._finish, step, folder, record)

    def wait(self) -> None:
        """Until nothing is being written.

        Raises CheckpointError if the writing failed: there is no such checkpoint then, and those before are whole.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def check(self) -> None:
        """Raise what ``wait`` would, if the writing has failed already; waits for nothing."""
        if self._under_way is not None and self._under_way.done():
            self.wait()

    def newest(self) -> Newest:
        """Read every byte of the newest checkpoint, and of the one before where that is damaged, and so on."""
        step, damaged = None, {}
        for candidate in reversed(self.steps()) if _first_process() else ():
            try:
                self._verify(candidate)
            except DamagedError as error:
                damaged[candidate] = str(error)
            else:
                step = candidate
                break
        if jax.process_count() > 1:  # one looks, all believe: they must not go on from different steps
            agreed = int(multihost_utils.broadcast_one_to_all(-1 if step is None else step))
            step = None if agreed < 0 else agreed
        return Newest(step, damaged)

    def damaged(self) -> list[str]:
        """Names of the folders that were set aside."""
        return folders.damaged_in(self.directory)

    def begun(self) -> bool:
        """Whether there ever was a complete checkpoint, whatever has become of it since."""
        return folders.begun(self.directory)

    def set_aside(self, step: int) -> Path:
        """Rename a damaged checkpoint, so that it counts no more; returns where it lies. Nothing of it is deleted."""
        return folders.set_aside(self.directory, step) if _first_process() else self.directory

    def tidy(self) -> None:
        """Remove what was left half-written, or half-deleted, by runs that were taken away; note what they did not."""
        self.wait()
        if _first_process():
            folders.tidy(self.directory)
            if folders.steps_in(self.directory):
                folders.note_begun(self.directory)

    def restore(self, abstract: TrainState, step: int | None = None) -> tuple[TrainState, RunRecord]:
        """Read the checkpoint of ``step`` (the newest by default) straight into the shardings of ``abstract``.

        ``abstract`` is ``learner.abstract_state(..., shardings)``; its mesh need not be the one that saved. Raises
        CheckpointError if there is none, if any of its files is not the one that was written, or if its tree, shapes
        or dtypes are not those of ``abstract`` (the first differences are named): nothing is ever cast, cut or left at
        its first value.
        """
        return self._read(step, lambda folder, where: (arrays.read_state(folder, abstract, where), read_record(folder)))

    def params(self, abstract: Params, step: int | None = None) -> Params:
        """Read the weights alone, whatever optimizer and method wrote them. Raises CheckpointError as ``restore``."""
        return self._read(step, lambda folder, where: arrays.read_params(folder, abstract, where))

    def record(self, step: int | None = None) -> RunRecord:
        """Read where a run stood, without its arrays. Raises CheckpointError as ``restore`` does."""
        return self._read(step, lambda folder, _: read_record(folder))

    def _finish(self, step: int, folder: Path, record: RunRecord) -> None:
        """In the thread: wait for the arrays, write what else there is, the manifest last; then delete the old."""
        assert self._writer is not None
        with self._writing(step):
            self._writer.wait()
            if not _first_process():
                return
            write_record(folder, record)
            write_manifest(folder, step)
            folders.complete(folder)
            folders.note_begun(self.directory)
        steps = folders.steps_in(self.directory)
        scores = {step: read_metrics(self.directory / str(step)).get(self._best_metric) for step in steps}
        for old in sorted(scores.keys() - kept(scores, **self._keep)):
            folders.delete(self.directory, old)

    def _end_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    @contextlib.contextmanager
    def _writing(self, step: int) -> Iterator[None]:
        """Turn what Orbax raises for a full disk, which is anything, into one line, and give back the room."""
        try:
            yield
        except Exception as error:
            self._end_writer()  # Others of its threads may still be writing.
            if _first_process():
                folders.give_up(self.directory, step)
            before = folders.steps_in(self.directory)
            left = f"those of steps {before} are whole" if before else "there was none before"
            remedy = "make room, and start the run again"
            if isinstance(error, TimeoutError):  # Orbax measures by the clock on the wall
                remedy = "the disk was too slow, or the clock was set; start the run again"
            raise CheckpointError(
                f"the checkpoint of step {step} in {self.directory} cannot be written ({said(error)}); {left}: {remedy}"
            ) from error

    def _read(self, step: int | None, read: Callable[[Path, str], T]) -> T:
        """Verify, once in the life of this object, then read."""
        step = self._existing(step)
        folder, where = self.directory / str(step), f"the checkpoint of step {step} in {self.directory}"
        with reading(where, f"delete {folder} to go back to an earlier one"):
            self._verify(step)
            return read(folder, where)

    def _verify(self, step: int) -> None:
        """Raise DamagedError unless the files of ``step`` are those that were written."""
        if _first_process() and step not in self._verified:
            check_manifest(self.directory / str(step), step)
            self._verified.add(step)

    def _existing(self, step: int | None) -> int:
        steps = self.steps()
        wanted = step if step is not None else (steps[-1] if steps else None)
        if wanted is None:
            raise CheckpointError(f"{self.directory} holds no complete checkpoint; give another directory")
        if wanted not in steps:
            raise CheckpointError(f"{self.directory} holds no checkpoint of step {wanted}; there are {steps}")
        return wanted


def _first_process() -> bool:
    return jax.process_index() == 0
