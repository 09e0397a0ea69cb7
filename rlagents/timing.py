"""Where the time of a step goes, and how to read a device without making it wait."""

import contextlib
import time
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class OneStepLate(Generic[T]):
    """Holds back one item, so that reading it never makes the device wait for the host.

    ``put(item)`` returns the item before it (None at first); ``last()`` returns the one still held.
    """

    def __init__(self) -> None:
        self._held: T | None = None

    def put(self, item: T) -> T | None:
        """Hold ``item`` and return what was held before."""
        before, self._held = self._held, item
        return before

    def last(self) -> T | None:
        """Return what is held and hold nothing."""
        before, self._held = self._held, None
        return before


class PhaseTimer:
    """Wall-clock seconds by phase, summed over the times a phase was entered since the last ``take``.

    JAX returns before the device is done; a phase that must account for its own device time ends by waiting
    (``jax.block_until_ready``).
    """

    def __init__(self, start: float | None = None) -> None:
        """Begin at ``start`` (of ``time.perf_counter``), or now."""
        self._start, self._earlier = time.perf_counter() if start is None else start, 0.0
        self._seconds: dict[str, float] = {}
        self._total: dict[str, float] = {}
        self._entered: list[str] = []
        self._beats = 0

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the start, those before a resume included."""
        return self._earlier + time.perf_counter() - self._start

    @property
    def current(self) -> str:
        """The phases that are entered, the outermost first: ``warm-up > checkpoint``; "" outside of all."""
        return " > ".join(tuple(self._entered))

    @property
    def beats(self) -> int:
        """Grows whenever a phase begins or ends, and with every ``beat``: while it does, nothing stands still."""
        return self._beats

    def beat(self) -> None:
        """Say that a long phase got on."""
        self._beats += 1

    def resume(self, elapsed_seconds: float) -> None:
        """Count what earlier processes had worked until the checkpoint; what was done after it is done again."""
        self._earlier = elapsed_seconds

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the body as ``name``, also when it raises. Phases may nest: each counts its own whole time."""
        start = time.perf_counter()
        self._entered.append(name)
        self.beat()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self._entered.pop()
            self.beat()
            for counted in (self._seconds, self._total):
                counted[name] = counted.get(name, 0.0) + seconds

    def take(self) -> dict[str, float]:
        """Return ``{"seconds/<phase>": seconds}`` and start again from nothing."""
        taken, self._seconds = self._seconds, {}
        return {f"seconds/{name}": seconds for name, seconds in taken.items()}

    def table(self) -> str:
        """Return what each phase cost since the start: seconds and share, a line a phase, the largest first."""
        whole, width = sum(self._total.values()), max(map(len, self._total), default=0)
        return "\n".join(
            f"  {name:<{width}}  {seconds:9.2f} s  {seconds / whole if whole else 0.0:6.1%}"
            for name, seconds in sorted(self._total.items(), key=lambda item: -item[1])
        )
