"""One worker as its supervisor sees it: a process, the connection to it, what it is at and what waits for it."""

import socket
import time
from dataclasses import dataclass, field

from rlagents.rollouts.jobs import Job, Waiting
from rlagents.rollouts.wire import FrameReader, send_frame

_TRANSFER_SECONDS = 30.0
_LOOK_SECONDS = 0.25
"""Between two looks at the memory of a worker that is busy."""


@dataclass(eq=False)
class Handle:
    """``running`` has been sent and not been answered; ``episodes`` live there, or are to be rebuilt there."""

    pid: int
    connection: socket.socket
    reader: FrameReader
    running: Job | None = None
    deadline: float = 0.0
    next_look: float = 0.0
    waiting: Waiting = field(default_factory=Waiting)
    episodes: set[int] = field(default_factory=set)

    def ask(self, job: Job) -> None:
        """Send a request. Raises OSError if nobody takes it."""
        self.running, self.deadline = job, time.monotonic() + job.timeout_seconds
        self.looked_at()
        self.connection.settimeout(_TRANSFER_SECONDS)
        send_frame(self.connection, job.payload)
        self.connection.setblocking(False)

    def answers(self) -> None:
        """It is done, and its answer under way."""
        self.deadline = time.monotonic() + _TRANSFER_SECONDS

    def looked_at(self) -> None:
        """The next look is later."""
        self.next_look = time.monotonic() + _LOOK_SECONDS

    def due(self) -> float | None:
        """Monotonic time at which something is to be done about it; None for never."""
        return min(self.deadline, self.next_look) if self.running else self.waiting.next_time()
