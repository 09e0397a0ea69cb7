"""The arrays of a checkpoint, by Orbax: written in the background, read into any mesh."""

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp

from rlagents.checkpoints.errors import CheckpointError
from rlagents.checkpoints.trees import check_holds, check_same_tree
from rlagents.learner.state import TrainState
from rlagents.types import Params

_STATE = "state"

_TIMEOUT_SECONDS = 10**9
"""As good as never: a slow disk is no failure, and the watchdog tells of a write that stands still."""


class ArrayWriter:
    """Writes one train state at a time. ``begin`` returns once the arrays are copied to the host; ``close`` it.

    One whose ``begin`` or ``wait`` has raised is of no more use: close it and make another.
    """

    def __init__(self) -> None:
        self._failed = False
        _hear_no_closed_loops()  # now: threads tell of a failure before it is raised
        self._checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler(), timeout_secs=_TIMEOUT_SECONDS)

    def begin(self, folder: Path, state: TrainState | Mapping[str, Params]) -> None:
        """Copy ``state`` and start to write it: afterwards its buffers may be donated. All processes call together."""
        with self._noticing():
            self._checkpointer.save(folder / _STATE, args=ocp.args.StandardSave(state))

    def wait(self) -> None:
        """Until what was begun is written. Raises what the writing raised."""
        with self._noticing():
            self._checkpointer.wait_until_finished()

    def close(self) -> None:
        """Wait until nothing is being written any more, failed or not, and release what it holds."""
        with contextlib.suppress(*[Exception] * self._failed):  # Orbax would tell of the same failure again
            self._checkpointer.close()

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            self._failed = True
            _say_nothing_more()
            raise


def _told_by_us(record: logging.LogRecord) -> bool:
    """Whether to print what was logged: Orbax prints pages for a failure that is raised as well."""
    of_orbax = f"{os.sep}orbax{os.sep}" in record.pathname
    of_tensorstore = record.exc_info is not None and "tensorstore_spec" in str(record.exc_info[1])
    return not (record.levelno == logging.ERROR and (of_orbax or of_tensorstore))


for _name in ("absl", "asyncio"):
    logging.getLogger(_name).addFilter(_told_by_us)


def _say_nothing_more() -> None:
    """After a failure, Orbax's and tensorstore's other threads would tell of it in pages of their own."""
    warnings.filterwarnings("ignore", message="coroutine '.*' was never awaited", category=RuntimeWarning)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


class _WithoutClosedLoops:
    """A hook of ``sys`` without what threads of tensorstore raise when the loop that waited for them is gone."""

    def __init__(self, before: Callable[..., Any]):
        self._before = before

    def __call__(self, *raised: Any) -> None:
        # ``excepthook`` is given kind, value and traceback, ``unraisablehook`` one object that has them.
        value = raised[0].exc_value if len(raised) == 1 else raised[1]
        if not (isinstance(value, RuntimeError) and str(value) == "Event loop is closed"):
            self._before(*raised)


def _hear_no_closed_loops() -> None:
    """Python's own threads tell ``excepthook`` of them, calls from tensorstore's ``unraisablehook``."""
    for name in ("excepthook", "unraisablehook"):
        hook = getattr(sys, name)
        if not isinstance(hook, _WithoutClosedLoops):
            setattr(sys, name, _WithoutClosedLoops(hook))


def read_state(folder: Path, abstract: TrainState, where: str) -> TrainState:
    """The whole state, into the shardings of ``abstract``. Raises CheckpointError if the trees differ."""
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        _refusing(check_same_tree, _tree(checkpointer, folder), abstract, where)
        return checkpointer.restore(folder / _STATE, args=ocp.args.StandardRestore(abstract))


def read_params(folder: Path, abstract: Params, where: str) -> Params:
    """The weights alone, whatever else lies beside them. Raises CheckpointError if there are others, or none."""
    check_params(folder, abstract, where)
    wanted = {"params": abstract}
    arguments = ocp.checkpoint_utils.construct_restore_args(wanted)
    restore: Any = ocp.args.PyTreeRestore(item=wanted, restore_args=arguments, partial_restore=True)
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        return checkpointer.restore(folder / _STATE, args=restore)["params"]


def check_params(folder: Path, abstract: Params, where: str) -> None:
    """Raise CheckpointError unless the weights have the shapes and dtypes of ``abstract``; reads none of them."""
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        _refusing(check_holds, _tree(checkpointer, folder), {"params": abstract}, where)


def _tree(checkpointer: ocp.Checkpointer, folder: Path) -> Any:
    metadata: Any = checkpointer.metadata(folder / _STATE).item_metadata
    if metadata is None:
        raise FileNotFoundError("the folder of its state holds no metadata")
    return metadata.tree


def _refusing(check: Any, *arguments: Any) -> None:
    try:
        check(*arguments)
    except ValueError as error:
        raise CheckpointError(str(error)) from error
