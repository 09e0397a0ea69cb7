"""What can be wrong with a checkpoint, told in one line."""

import contextlib
from collections.abc import Iterator

import jax

from rlagents.durable import WriteError

_LONGEST = 200
"""Characters of what a library says."""


class CheckpointError(ValueError):
    """There is no such checkpoint, it cannot be read or written, or it holds another tree than the one asked for."""


class DamagedError(CheckpointError):
    """The files of a checkpoint are not those that were written."""


@contextlib.contextmanager
def reading(where: str, remedy: str) -> Iterator[None]:
    """Turn what Orbax raises for missing and damaged files, which is anything, into one line that names them."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError):
        raise  # of this machine: the files are not to blame
    except Exception as error:
        if isinstance(error, CheckpointError) and not isinstance(error, DamagedError):
            raise
        raise CheckpointError(f"{where} cannot be read ({said(error)}); {remedy}") from error


def said(error: Exception) -> str:
    """The first line of an error, without the pages that some libraries add.

    A long one is cut in its middle: libraries name paths first, and the reason last.
    """
    line = str(error).strip().partition("\n")[0].partition(" [tensorstore_spec=")[0]
    if isinstance(error, (CheckpointError, WriteError)):
        return line
    half = _LONGEST // 2
    short = line if len(line) <= _LONGEST else f"{line[:half]}...{line[-half:]}"
    return f"{type(error).__name__}: {short}"
