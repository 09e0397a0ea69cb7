"""A thread that says where a run stands still: the phase, since when, and what every thread is doing."""

import contextlib
import datetime
import faulthandler
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from rlagents.argument_checks import check_number

_LOOKS = 8
"""In the time after which a run counts as stalled."""
_LONGEST_WAIT_SECONDS = 10.0
_ASLEEP = 4
"""A look so many waits late: it was the whole process that stood still, suspended, and not what it was doing."""


class Phases(Protocol):
    """What is used of :class:`rlagents.timing.PhaseTimer`."""

    @property
    def beats(self) -> int: ...  # noqa: D102
    @property
    def current(self) -> str: ...  # noqa: D102


class Watchdog:
    """Looks whether phases begin and end. A stall is told on the terminal and in ``stalls.txt``; nothing is ended.

    The same stall is told again when it has lasted twice as long, then four times, and so on. Time is monotonic: a
    clock that is set changes nothing, and time for which the whole process was suspended does not count.
    """

    def __init__(
        self,
        phases: Phases,
        workdir: Path,
        status: Callable[[], str],
        *,
        stalled_after_seconds: float = 1800.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Watch over ``phases``.

        Args:
          phases: tells the phase, and counts what begins and ends.
          workdir: ``stalls.txt`` is written there.
          status: one line on what the run waits for, such as the tool workers.
          stalled_after_seconds: without a phase that begins or ends; longer than the longest phase, compilation
            included. 0 never looks.
          clock: seconds.

        Raises:
          ValueError: ``stalled_after_seconds`` is no number >= 0.
        """
        check_watchdog(stalled_after_seconds=stalled_after_seconds)
        self._phases, self._path, self._status = phases, workdir / "stalls.txt", status
        self._limit, self._clock = stalled_after_seconds, clock
        self.wait_seconds = min(stalled_after_seconds / _LOOKS, _LONGEST_WAIT_SECONDS)
        """Between two looks."""
        self._seen, self._since, self._next = phases.beats, clock(), stalled_after_seconds
        self._looked = self._since

    def look(self) -> bool:
        """Return whether a stall was told."""
        now, beats = self._clock(), self._phases.beats
        late = now - self._looked - self.wait_seconds
        self._looked = now
        if beats != self._seen:
            self._seen, self._since, self._next = beats, now, self._limit
            return False
        if late > _ASLEEP * self.wait_seconds:
            self._since += late
        stalled = now - self._since
        if stalled < self._next:
            return False
        self._next = 2 * stalled
        self._tell(stalled)
        return True

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look, from a thread, while the body runs."""
        if not self._limit:
            yield
            return
        ended = threading.Event()

        def keep_looking() -> None:
            while not ended.wait(self.wait_seconds):
                self.look()

        thread = threading.Thread(target=keep_looking, name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _tell(self, stalled: float) -> None:
        phase = self._phases.current or "outside of all phases"
        said = f"nothing has begun or ended for {stalled:.0f} s; the run stands in: {phase}"
        try:
            status = self._status()
        except Exception as error:  # whatever is broken there, the stacks are to be told
            status = f"no status: {type(error).__name__}: {error}"
        print(f"watchdog: {said}; {status}; what every thread is doing is in {self._path}", file=sys.stderr, flush=True)
        try:
            with self._path.open("a", encoding="utf-8") as file:
                stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
                file.write(f"{stamp}  {said}\n{status}\n")
                file.flush()
                faulthandler.dump_traceback(file, all_threads=True)
                file.write("\n")
        except OSError as error:
            print(f"watchdog: {self._path} cannot be written ({error})", file=sys.stderr, flush=True)


def check_watchdog(*, stalled_after_seconds: float = 1800.0) -> None:
    """Raise ValueError unless it is a number >= 0."""
    check_number("stalled_after_seconds", stalled_after_seconds, 0)
