"""TensorBoard event files without TensorFlow: the same names as in the JSON lines, each event on disk at once."""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

from rlagents.durable import writing

_NUMBERED = re.compile(r"events_(\d+)\.")


class TensorBoardWriter:
    """One event a step with all of its metrics, tags being their names; in a new file of ``folder``."""

    def __init__(self, folder: str | Path, *, first_step: int = 0):
        """Begin a file with ``first_step``.

        What earlier files of ``folder`` say of it and of later steps is taken back: TensorBoard shows each step once,
        however often a run was killed.
        """
        self._folder = Path(folder)
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            # TensorBoard reads files in the order of their names. The library names them by the second alone, so that
            # a clock that was set back would put a resume before what it takes back.
            self._events = EventsWriter(str(self._folder / f"events_{_next_number(self._folder):06d}"))
        begun = SessionLog(status=SessionLog.START)
        self._write(Event(wall_time=time.time(), step=first_step, session_log=begun))

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Write one event; numbers as float32, NaN and infinities as they are. Raises durable.WriteError."""
        numbers = [Summary.Value(tag=name, simple_value=float(value)) for name, value in values.items()]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=numbers)))

    def close(self) -> None:
        """Close the file."""
        with writing(self._folder):
            self._events.close()

    def _write(self, event: Event) -> None:
        with writing(self._folder):
            self._events.write_event(event)
            self._events.flush()


def _next_number(folder: Path) -> int:
    """After those of all files in ``folder``, from 1 on."""
    found = (_NUMBERED.match(file.name) for file in folder.iterdir())
    return 1 + max((int(match[1]) for match in found if match), default=0)
