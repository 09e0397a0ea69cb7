"""Checkpoints: the whole train state and where the run stood, written so that a broken write is no checkpoint.

Orbax writes into a temporary directory and renames it when all is there; a directory named by its step is complete.
Beside the state lies one JSON document: the data position, the config, facts about the run, and the rollout that was
sampled ahead, if any.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from rlagents.learner.state import TrainState

_managers = ocp.checkpoint_managers


class CheckpointError(ValueError):
    """There is no such checkpoint, it cannot be read, or it holds another tree than the one asked for."""


@dataclass(frozen=True)
class RunRecord:
    """What continues beside the arrays. All values are JSON."""

    position: Mapping[str, Any]
    """Where the data streams stand, e.g. ``{"prompts": 128}``: their own positions, never derived from step counts."""
    config: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the run: name, seed, code version."""
    pending: Mapping[str, Any] | None = None
    """The rollout that the next step learns from, where it was sampled ahead: ``rollouts.stored.to_document``."""


class Checkpoints:
    """A directory of checkpoints, one a step. Use as a context manager, or ``close`` it."""

    def __init__(self, directory: str | Path, *, keep_last: int = 3, keep_every_steps: int | None = None):
        """Keep the ``keep_last`` newest, and for good those whose step is a multiple of ``keep_every_steps``.

        Creates ``directory``. Raises ValueError unless both are positive.
        """
        if keep_last < 1 or (keep_every_steps is not None and keep_every_steps < 1):
            raise ValueError(f"keep_last={keep_last} and keep_every_steps={keep_every_steps} must be 1 or more")
        self.directory = Path(directory).absolute()
        policies: list[Any] = [_managers.LatestN(keep_last)]
        if keep_every_steps is not None:
            policies.append(_managers.EveryNSteps(keep_every_steps))
        self._manager = ocp.CheckpointManager(
            self.directory,
            item_handlers={"state": ocp.StandardCheckpointHandler(), "record": ocp.JsonCheckpointHandler()},
            options=ocp.CheckpointManagerOptions(
                create=True,
                preservation_policy=_managers.AnyPreservationPolicy(policies),
                enable_async_checkpointing=False,
            ),
        )

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish deletions and release the directory."""
        self._manager.close()

    def steps(self) -> list[int]:
        """Steps of all complete checkpoints, oldest first."""
        return sorted(self._manager.all_steps())

    def latest_step(self) -> int | None:
        """Step of the newest complete checkpoint; None where there is none."""
        return self._manager.latest_step()

    def save(self, step: int, state: TrainState, record: RunRecord) -> None:
        """Write a checkpoint of ``step``; returns when it is complete. All processes call this together.

        Raises CheckpointError if ``step`` was saved before: a run that repeats a step has lost its place.
        """
        if step in self.steps():
            raise CheckpointError(f"{self.directory} already holds step {step}; restore it or move it away")
        document = {
            "position": dict(record.position),
            "config": dict(record.config),
            "run": dict(record.run),
            "pending": None if record.pending is None else dict(record.pending),
        }
        self._manager.save(
            step,
            args=ocp.args.Composite(state=ocp.args.StandardSave(state), record=ocp.args.JsonSave(document)),
            force=True,
        )

    def restore(self, abstract: TrainState, step: int | None = None) -> tuple[TrainState, RunRecord]:
        """Read the checkpoint of ``step`` (the newest by default) straight into the shardings of ``abstract``.

        ``abstract`` is ``learner.abstract_state(..., shardings)``; its mesh need not be the one that saved. Raises
        CheckpointError if there is none, if a part of it is missing or damaged, or if its tree, shapes or dtypes are
        not those of ``abstract`` (the first differences are named): nothing is ever cast, cut or left at its first
        value.
        """
        step = self._existing(step)
        with self._reading(step):
            self._check_tree(abstract, step)
            restored = self._manager.restore(
                step,
                args=ocp.args.Composite(state=ocp.args.StandardRestore(abstract), record=ocp.args.JsonRestore()),
            )
            return restored["state"], RunRecord(**restored["record"])

    def record(self, step: int | None = None) -> RunRecord:
        """Read where a run stood, without its arrays. Raises CheckpointError as ``restore`` does."""
        step = self._existing(step)
        with self._reading(step):
            restored = self._manager.restore(step, args=ocp.args.Composite(record=ocp.args.JsonRestore()))
            return RunRecord(**restored["record"])

    @contextlib.contextmanager
    def _reading(self, step: int) -> Iterator[None]:
        """Turn what Orbax raises for missing and damaged files, which is anything, into one line that names them."""
        try:
            yield
        except (CheckpointError, MemoryError, jax.errors.JaxRuntimeError):
            raise  # of the checkpoint, or of this machine: the files are not to blame
        except Exception as error:
            said = str(error).strip().partition("\n")[0].partition(" [tensorstore_spec=")[0]
            raise CheckpointError(
                f"the checkpoint of step {step} in {self.directory} cannot be read ({type(error).__name__}: {said}); "
                f"delete {self.directory / str(step)} to go back to an earlier one"
            ) from error

    def _existing(self, step: int | None) -> int:
        steps = self.steps()
        wanted = step if step is not None else (steps[-1] if steps else None)
        if wanted is None:
            raise CheckpointError(f"{self.directory} holds no complete checkpoint; give another directory")
        if wanted not in steps:
            raise CheckpointError(f"{self.directory} holds no checkpoint of step {wanted}; there are {steps}")
        return wanted

    def _check_tree(self, abstract: TrainState, step: int) -> None:
        metadata: Any = self._manager.item_metadata(step)["state"]
        if metadata is None:
            raise FileNotFoundError("the folder of its state holds no metadata")
        stored, wanted = _leaves(metadata.tree), _leaves(abstract)
        differences = [f"{name} is missing from the checkpoint" for name in wanted if name not in stored]
        differences += [f"{name} is in the checkpoint alone" for name in stored if name not in wanted]
        differences += [
            f"{name} is {stored[name]} in the checkpoint but {wanted[name]} here"
            for name in wanted
            if name in stored and stored[name] != wanted[name]
        ]
        if differences:
            shown = "; ".join(differences[:5]) + ("; ..." if len(differences) > 5 else "")
            raise CheckpointError(
                f"the checkpoint of step {step} in {self.directory} holds another train state ({len(differences)} "
                f"differences: {shown}); restore it with the model, optimizer and method that wrote it"
            )


def _leaves(tree: Any) -> dict[str, str]:
    """Path -> dtype and shape of every array; keys count as the integers they are stored as."""

    def describe(leaf: Any) -> str:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.eval_shape(jax.random.key_data, leaf)
        return f"{leaf.dtype}{list(leaf.shape)}"

    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: hasattr(x, "dtype"))
    return {jax.tree_util.keystr(path, simple=True, separator="/"): describe(leaf) for path, leaf in leaves}
