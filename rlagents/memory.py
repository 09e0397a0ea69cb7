"""How much memory there is for arrays: of a device where it tells, else of this machine."""

import contextlib
import os
from pathlib import Path

import jax

_BOUND_OF_CONTAINER = Path("/sys/fs/cgroup/memory.max")


def device_memory() -> tuple[int, str]:
    """Bytes that one device of this process may hold, and whose they are; CPU devices share their machine's."""
    told = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.local_devices()]
    if min(told) > 0:
        return min(told), "a device"
    return machine_memory() // len(told), "this machine"


def machine_memory() -> int:
    """Bytes of memory of this machine, or of the container that the process is in, if that has less."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # there is no bound, or it is "max"
        return min(whole, int(_BOUND_OF_CONTAINER.read_text()))
    return whole
