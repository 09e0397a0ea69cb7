"""What belongs to a whole process, and not to one episode: put back after every request. No jax, workers import this.

A tool that changes the working folder, or sets an alarm, would otherwise change what happens to other episodes of its
worker, and to its own where they are rebuilt.
"""

import contextlib
import os
import resource
import signal

_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class Surroundings:
    """Working folder, environment variables, file mode mask, limits, signal handlers and timers, as they are now."""

    def __init__(self) -> None:
        self._folder = os.getcwd()
        self._variables = dict(os.environ)
        self._mask = _file_mask()
        self._limits = {limit: resource.getrlimit(limit) for limit in _LIMITS}
        # None is a handler that was not set from Python: it cannot be set from there either.
        handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._handlers = {number: handler for number, handler in handlers.items() if handler is not None}
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def restore(self) -> str | None:
        """Put back what was changed; what could not be put back, or None."""
        for timer in _TIMERS:
            if any(signal.getitimer(timer)):
                signal.setitimer(timer, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)
        for number, handler in self._handlers.items():
            if signal.getsignal(number) != handler:
                with contextlib.suppress(OSError, ValueError):
                    signal.signal(number, handler)
        if dict(os.environ) != self._variables:
            os.environ.clear()
            os.environ.update(self._variables)
        os.umask(self._mask)
        return self._restore_folder() or self._restore_limits()

    def _restore_folder(self) -> str | None:
        try:
            if os.getcwd() == self._folder:
                return None
        except OSError:
            pass  # it was deleted
        try:
            os.chdir(self._folder)
        except OSError as error:
            return f"the working folder ({error.strerror})"
        return None

    def _restore_limits(self) -> str | None:
        for limit, values in self._limits.items():
            if resource.getrlimit(limit) != values:
                try:
                    resource.setrlimit(limit, values)
                except (OSError, ValueError) as error:
                    return f"a resource limit ({error})"
        return None


def _file_mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
