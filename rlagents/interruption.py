"""Being asked to stop: a signal, or a notice that the machine is taken away, sets a flag that is read between steps."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

import jax
from jax.experimental import multihost_utils

EXIT_CODE = 75
"""EX_TEMPFAIL of sysexits.h: all is saved, start me again."""


class Interrupted(Exception):  # noqa: N818  no error: the run was asked to stop, and has saved
    """The run has stopped where it was asked to; the message says where it stands."""


class Interruption:
    """Whether somebody asked the run to stop. Nobody can before :func:`interruptible` listens."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The signal that asked."""

    def requested(self, step: int) -> bool:
        """Whether to save and stop after ``step`` steps: the same answer in all processes, which all have to ask.

        Of several processes only some may have had the notice; JAX agrees on the step after which all stop.
        """
        if jax.process_count() > 1:
            return multihost_utils.reached_preemption_sync_point(step)
        return self.signal is not None


@contextlib.contextmanager
def interruptible() -> Iterator[Interruption]:
    """Listen to SIGTERM, SIGINT (Ctrl-C) and SIGHUP (the terminal was closed) meanwhile.

    A second SIGINT ends the process at once, saving nothing. SIGHUP stays ignored where it was, as ``nohup`` has it.
    Of several processes, JAX's coordination service listens to SIGTERM itself, and here nothing is changed.
    """
    interruption = Interruption()

    def asked(number: int, _: Any) -> None:
        interruption.signal = signal.Signals(number)
        with contextlib.suppress(RuntimeError):  # it came while something was being printed
            print(f"{interruption.signal.name}: saving after this step, then stopping", flush=True)
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    numbers = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP} if jax.process_count() == 1 else set()
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        numbers.discard(signal.SIGHUP)
    before = {number: signal.signal(number, asked) for number in numbers}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
