"""A program's whole way from its command line, in this process: which exit code, and what it printed."""

import contextlib
import io
from types import ModuleType
from typing import NamedTuple
from unittest import mock

from absl.testing import flagsaver

from rlagents import command_line


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def started(program: ModuleType, *options: str) -> Ended:
    """Run ``python -m PROGRAM OPTIONS``."""
    argv, out, err = [program.__file__, *options], io.StringIO(), io.StringIO()
    with (
        mock.patch("sys.argv", argv),  # where ml_collections looks for overrides
        flagsaver.flagsaver(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            program.main(command_line.parse_flags(argv))
            code = 0
        except SystemExit as ended:
            code = ended.code
    return Ended(code, out.getvalue(), err.getvalue())
