"""The weights of a checkpoint that somebody names: by the folder of a run, of its checkpoints, or of one of them."""

from pathlib import Path

from rlagents.checkpoints import arrays
from rlagents.checkpoints.errors import CheckpointError, reading
from rlagents.checkpoints.manifest import MANIFEST, check_manifest
from rlagents.checkpoints.store import Checkpoints
from rlagents.types import Params

_OF_A_RUN = "checkpoints"


def params_of(source: Path, abstract: Params) -> tuple[Params, str]:
    """The weights, in the shardings of ``abstract``, and which they are, in words; of a run the newest whole ones.

    Raises CheckpointError if there are none, if they are damaged, or if their shapes or dtypes are not those of
    ``abstract``.
    """
    folder = _folder(source, whole=True)
    where = f"the checkpoint {folder}"
    with reading(where, f"give another one as checkpoint.restore_from than {source}"):
        check_manifest(folder)
        return arrays.read_params(folder, abstract, where), f"those of {folder}"


def check_params_of(source: Path, abstract: Params) -> None:
    """Raise what ``params_of`` would but for damage, which only reading all of it shows."""
    folder = _folder(source, whole=False)
    where = f"the checkpoint {folder}"
    with reading(where, f"give another one as checkpoint.restore_from than {source}"):
        arrays.check_params(folder, abstract, where)


def _folder(source: Path, *, whole: bool) -> Path:
    if (source / MANIFEST).is_file():
        return source
    directory = source / _OF_A_RUN if (source / _OF_A_RUN).is_dir() else source
    with Checkpoints(directory) as checkpoints:
        newest = checkpoints.newest() if whole else None
        step = checkpoints.latest_step() if newest is None else newest.step
    if step is None:
        damaged = newest.damaged if newest is not None else {}
        what = f"no whole checkpoint ({damaged})" if damaged else "no complete checkpoint"
        raise CheckpointError(
            f"{directory} holds {what}; give the folder of a run, of its checkpoints, or of one of them as "
            "checkpoint.restore_from"
        )
    return directory / str(step)
