"""What the operating system knows of processes: memory, open files, children. Linux; elsewhere nothing is known.

No jax: workers and their server import this.
"""

import contextlib
import ctypes
import os
import signal
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_DIE_WITH_PARENT, _ADOPT_ORPHANS = 1, 36  # of prctl(2)
_MOST_SWEEPS = 1000
"""Each kills all that is there; what was started meanwhile is left to the next."""


class Look(NamedTuple):
    """What one look at a process finds: of one that is not there, nothing, and ``dead``."""

    dead: bool
    resident_bytes: int
    """Memory of it and of all that it has started and that lives, what they share counted for each."""
    open_files: int


def look_at(pid: int) -> Look:
    """Look at a process. Takes some tens of microseconds."""
    state, _ = _state_and_session(pid)
    if state in ("", "Z", "X"):
        return Look(state != "" or Path("/proc/self").exists(), 0, 0)
    return Look(False, _resident(pid) + sum(map(_resident, descendants(pid))), _open_files(pid))


def descendants(pid: int) -> Iterator[int]:
    """Processes that ``pid`` started, and those that these started, as far as their parents live."""
    for child in children(pid):
        yield child
        yield from descendants(child)


def children(pid: int) -> list[int]:
    """Processes whose parent is ``pid``."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def die_with_parent(parent: int) -> None:
    """The operating system kills this process when ``parent``, which forked it, dies; at once if it already has."""
    _prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Processes below this one whose parent dies become its children, wherever they have moved their session."""
    _prctl(_ADOPT_ORPHANS, 1)


def kill_orphans(spared: Collection[int]) -> None:
    """Kill the children of this process but the ``spared`` and what belongs to the session of one of those.

    A child that has died stays a zombie until it is waited for here, so its number cannot be another process's.
    """
    for _ in range(_MOST_SWEEPS):
        doomed = [pid for pid in children(os.getpid()) if pid not in spared and not _belongs(pid, spared)]
        if not doomed:
            return
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _belongs(pid: int, leaders: Collection[int]) -> bool:
    state, session = _state_and_session(pid)
    return state not in ("", "Z", "X") and session in leaders


def _state_and_session(pid: int) -> tuple[str, int]:
    try:
        # The name stands in parentheses and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], int(fields[3])
    except (OSError, IndexError):
        return "", 0


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _open_files(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(AttributeError, OSError):  # not Linux
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
