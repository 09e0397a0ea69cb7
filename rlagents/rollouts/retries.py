"""When to ask a remote tool again that was away: later and later, and not all at once. No jax, workers import this."""

import zlib
from dataclasses import dataclass

_LONGEST_SECONDS = 60.0


@dataclass(frozen=True)
class Retries:
    """How often a call is made again whose remote tool was away, and how long to wait before.

    Attributes:
      most: times that a call is made again; 0 gives up at once.
      seconds: the wait before the first of them, on average; each later one takes twice as long, up to a minute.
    """

    most: int = 3
    seconds: float = 1.0

    def wait_seconds(self, attempt: int, call: int) -> float:
        """``seconds * 2**attempt`` times a factor in [1/2, 3/2), at most a minute.

        The factor follows from the number of the ``call`` and of the ``attempt`` (from 0 on), so that calls which
        failed together do not come back together, and a run that is made again waits as it did.
        """
        factor = 0.5 + zlib.crc32(f"{call} {attempt}".encode()) / 2**32
        return min(_LONGEST_SECONDS, self.seconds * 2.0 ** min(attempt, 60) * factor)
