"""What a worker may hold between two requests, and what while it is busy."""

from dataclasses import dataclass

from rlagents.rollouts.processes import look_at
from rlagents.rollouts.worker import MOST_FILES


@dataclass(frozen=True)
class Bounds:
    """What a worker may use.

    Attributes:
      memory_bytes: resident memory of it and its children; beyond it, it is killed. What is left when it has answered
        is to be less than half of that: the rest is for the request to come.
      reply_bytes: of one answer.
    """

    memory_bytes: int
    reply_bytes: int

    def leak(self, pid: int) -> str | None:
        """What a worker holds on to that is too much between two requests; None for nothing."""
        look, most = look_at(pid), self.memory_bytes // 2
        if look.resident_bytes > most:
            return f"holds {look.resident_bytes} bytes of memory, and may hold {most} between requests"
        if look.open_files > MOST_FILES // 2:
            return f"holds {look.open_files} open files, and may hold {MOST_FILES // 2} between requests"
        return None
