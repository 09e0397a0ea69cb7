"""Where the weights of a run come from, in this order: its own checkpoint, a named one, what the experiment makes.

    1. the newest whole checkpoint of the run itself: of the reinforced phase, or else of its warm-up
    2. ``checkpoint.restore_from``: copied into the run's ``first_weights/`` when it is first started, so that a restart
       begins with the same weights whatever has become of the other run
    3. ``make_params`` of the experiment: pretrained weights, or from scratch

No step falls through to the next because something cannot be read: that is an error, and the run is not started over.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from rlagents.checkpoints import CheckpointError, CheckpointOptions, Checkpoints, RunRecord, check_params_of, params_of
from rlagents.experiment import Config
from rlagents.machinery import Machinery, RandomParams, abstract_params
from rlagents.metrics.lines import files_of, read_lines
from rlagents.models.vocabulary import GrownParams
from rlagents.types import Params
from rlagents.versions import code_versions, version_differences
from rlagents.workdir import differing_keys, is_of, plain

COPIED, WARM_UP, REINFORCED = "first_weights", "warm_up", "checkpoints"
"""Folders of checkpoints in a run's: of the named weights, of the warm-up, of the reinforced phase."""


class Resumed(NamedTuple):
    """The step that a phase goes on after, and where the run stood then."""

    step: int
    record: RunRecord


def new_record(config: Config, position: Mapping[str, Any], elapsed_seconds: float, **more: Any) -> RunRecord:
    """What every checkpoint of a run says of it."""
    run = {"elapsed_seconds": elapsed_seconds, "versions": code_versions()}
    return RunRecord(position, config=plain(config), run=run, **more)


def resumed(checkpoints: Checkpoints, config: Config, log: Path | None = None) -> Resumed | None:
    """The newest whole checkpoint of a phase; None where it has none yet.

    Newer ones that are damaged are renamed, and told of on standard error, as are steps before it whose lines are not
    in the phase's ``log``. Raises CheckpointError where there were checkpoints and none is whole, or none is there any
    more; and for one of another config, naming the keys that differ. Other versions of the code are only told of.
    """
    checkpoints.tidy()
    newest = checkpoints.newest()
    if newest.step is None:
        lost = [f"step {step}: {what}" for step, what in newest.damaged.items()] or checkpoints.damaged()
        if lost:
            raise CheckpointError(
                f"{checkpoints.directory} holds checkpoints, but none that is whole ({'; '.join(lost)}); put a whole "
                "one back, or give a new --workdir to begin anew: a run is never started over by itself"
            )
        if checkpoints.begun():
            raise CheckpointError(
                f"{checkpoints.directory} held checkpoints, and holds none any more; put one back, or give a new "
                "--workdir to begin anew: a run is never started over by itself"
            )
        return None
    record = checkpoints.record(newest.step)
    differences = differing_keys(record.config, plain(config))
    if differences:
        raise CheckpointError(
            f"the checkpoint of step {newest.step} in {checkpoints.directory} is of another config "
            f"({'; '.join(differences)}); give the config that wrote it, or another --workdir"
        )
    for step, what in newest.damaged.items():
        aside = checkpoints.set_aside(step)
        print(
            f"WARNING: the checkpoint of step {step} in {checkpoints.directory} is damaged ({what}); it was renamed to "
            f"{aside.name}, and what came after step {newest.step} is made again",
            file=sys.stderr,
            flush=True,
        )
    if log is not None:
        _tell_of_lost_lines(log, newest.step)
    other = version_differences(record.run["versions"], code_versions())
    if other:
        print(
            f"the checkpoint of step {newest.step} was written by other code ({'; '.join(other)}); what follows may "
            "differ from what would have followed",
            flush=True,
        )
    return Resumed(newest.step, record)


def _tell_of_lost_lines(log: Path, step: int) -> None:
    """Say which of the first ``step`` steps have no line: they are not made again, so their numbers stay lost."""
    there = {row["step"] for row in read_lines(log)} if files_of(log) else set()
    lost = [number for number in range(step) if number not in there]
    if lost:
        print(
            f"WARNING: {log} has no line that can be read of {len(lost)} of the {step} steps before the checkpoint, "
            f"the first of them step {lost[0]}; the run goes on, and what they were stays unknown",
            file=sys.stderr,
            flush=True,
        )


def finished(workdir: Path, config: Config) -> bool:
    """Whether the folder holds all steps of a run of this config. Nothing is changed.

    Raises ValueError if the folder is another's.
    """
    if not is_of(workdir, config):
        return False
    folder, steps = (REINFORCED, config.rl.steps) if config.rl.steps else (WARM_UP, config.supervised.steps)
    with Checkpoints(workdir / folder) as checkpoints:
        return steps in checkpoints.steps() and checkpoints.newest().step == steps


def first_weights(machinery: Machinery, workdir: Path) -> Params:
    """Weights before any step: the named ones, or the experiment's own; says which, unless the run goes on anyway.

    Raises CheckpointError if the named ones are damaged, or of another decoder.
    """
    config = machinery.config
    source = CheckpointOptions(**config.checkpoint).restore_from
    if not source:
        made, added = machinery.experiment.make_params, ""
        if isinstance(made, GrownParams):
            made, added = made.make_params, f", with new rows for {len(made.created)} tokens"
        scratch = f"from scratch, drawn from seed {config.seed}" if isinstance(made, RandomParams) else "pretrained"
        _say(workdir, f"the experiment's own, {scratch}{added}")
        return machinery.make_params()
    abstract = placed_params(machinery)
    with Checkpoints(workdir / COPIED, keep_last=1) as copied:
        if resumed(copied, config) is None:
            params, where = params_of(Path(source), abstract)
            copied.save(0, {"params": params}, new_record(config, {}, 0.0))
            _say(workdir, where)
        return copied.params(abstract, 0)


def check_restore_from(machinery: Machinery, workdir: Path) -> None:
    """Refuse a named checkpoint that is not there, or of another decoder, before anything is written.

    Raises CheckpointError.
    """
    source = CheckpointOptions(**machinery.config.checkpoint).restore_from
    with Checkpoints(workdir / COPIED) as copied:
        if source and not copied.steps():
            check_params_of(Path(source), placed_params(machinery))


def placed_params(machinery: Machinery) -> Params:
    """Shapes, dtypes and places of a run's weights: what they are restored into. Nothing is allocated."""

    def placed(leaf: Any, sharding: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(placed, abstract_params(machinery.experiment.decoder), machinery.param_shardings)


def _say(workdir: Path, which: str) -> None:
    with Checkpoints(workdir / REINFORCED) as checkpoints:
        if not checkpoints.steps():
            print(f"weights: {which}", flush=True)
