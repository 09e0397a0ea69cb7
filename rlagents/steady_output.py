"""What a run prints is for whoever looks: where nobody does any more, the run goes on.

A pipe whose reader has ended, a terminal that was closed and a full disk under a redirection make every ``print`` an
error. A run of days must not end of that; what it did stands in its folder.
"""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO


class SteadyStream(io.TextIOBase):
    """A text stream that writes to another one until that fails, and from then on nowhere.

    Attributes:
      failed: what was wrong with the other stream; None while it is well.
    """

    def __init__(self, stream: TextIO | None):
        """None stands for a stream that was closed before the program began."""
        self._stream = stream
        self.failed: OSError | ValueError | None = None

    def write(self, text: str) -> int:
        """Write ``text``, or lose it."""
        self._try("write", text)
        return len(text)

    def flush(self) -> None:
        """Flush, or do nothing."""
        self._try("flush")

    def isatty(self) -> bool:
        """Whether somebody sits before it."""
        return bool(self._try("isatty"))

    def fileno(self) -> int:
        """The other stream's number. Raises io.UnsupportedOperation where there is none."""
        if self._stream is None:
            raise io.UnsupportedOperation("the stream was closed before the program began")
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  read-only there as well
        """The other stream's encoding: who draws asks for it."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def _try(self, method: str, *arguments: Any) -> Any:
        if self._stream is None or self.failed is not None:
            return None
        try:
            return getattr(self._stream, method)(*arguments)
        except (OSError, ValueError) as error:  # ValueError: it was closed
            self.failed = error
            _forget(self._stream)
            return None


@contextlib.contextmanager
def steady_output() -> Iterator[None]:
    """Standard output and error are steady meanwhile."""
    out, err = SteadyStream(sys.stdout), SteadyStream(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield


def _forget(stream: TextIO) -> None:
    """Turn what is still in the stream's buffer away: Python writes it at the end, and would fail again."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
