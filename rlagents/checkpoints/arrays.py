"""The arrays of a checkpoint, by Orbax: written in the background, read into any mesh."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp

from rlagents.checkpoints.errors import CheckpointError
from rlagents.checkpoints.trees import check_holds, check_same_tree
from rlagents.learner.state import TrainState
from rlagents.types import Params

_STATE = "state"


class ArrayWriter:
    """Writes one train state at a time. ``begin`` returns once the arrays are copied to the host; ``close`` it."""

    def __init__(self) -> None:
        self._checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())

    def begin(self, folder: Path, state: TrainState | Mapping[str, Params]) -> None:
        """Copy ``state`` and start to write it: afterwards its buffers may be donated. All processes call together."""
        self._checkpointer.save(folder / _STATE, args=ocp.args.StandardSave(state))

    def wait(self) -> None:
        """Until what was begun is written. Raises what the writing raised."""
        self._checkpointer.wait_until_finished()

    def close(self) -> None:
        """Release what it holds."""
        self._checkpointer.close()


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
