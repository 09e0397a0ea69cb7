"""Rollouts sampled ahead: in a thread, with the weights before an update, while that update runs.

    ahead = RolloutsAhead(roll_out, sampler)
    for step in range(steps):
        sampled = ahead.take(step)
        ahead.begin(step + 1)                  # with the weights of `step` updates ...
        with ahead.learner_turn():
            ...                                # ... while the update of `step` is handed to the devices
        ahead.wait()
        sampler.load(params, step + 1)         # no rollout is under way

Which weights sample which rollout follows from this order and never from who is faster: all that was begun has ended
before weights are loaded. Without ``begin``, ``take`` samples on the spot, with the newest weights.

The devices run the programs of both sides one after another; what is saved is the time in which one side keeps them
waiting: tools that run, text that is tokenised, batches that are collated.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from rlagents.rollouts.driver import Rollout
from rlagents.rollouts.members import TurnSampler
from rlagents.sampling.turns import Turn


class RolloutsAhead:
    """At most one rollout begun before its turn. Close it: the thread ends after the device call that it is at.

    Args:
      roll_out: ``(sampler, step) -> rollout``; called for one step at a time, in the order of steps.
      sampler: what it samples with; nothing else uses it while a rollout is under way.
      pending: the rollout of the first step to come, if a run before this one has sampled it.
    """

    def __init__(
        self,
        roll_out: Callable[[TurnSampler, int], Rollout],
        sampler: TurnSampler,
        *,
        pending: Rollout | None = None,
    ):
        self._roll_out, self._sampler = roll_out, sampler
        self._turns, self._stopped = _DeviceTurns(), threading.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollout ahead")
        self._begun: tuple[int, Future[Rollout]] | None = None
        self._pending = pending
        self.seconds = 0.0
        """What the newest rollout that was begun ahead took, waiting for the devices included."""

    @property
    def pending(self) -> Rollout | None:
        """The rollout that was begun, or given, and not yet taken. None while it is under way."""
        return self._pending

    def take(self, step: int) -> Rollout:
        """The rollout of ``step``: the pending one, or one sampled now. Raises what its sampling raised."""
        self.wait()
        if self._pending is None:
            return self._roll_out(self._sampler, step)
        taken, self._pending = self._pending, None
        return taken

    def begin(self, step: int) -> None:
        """Sample the rollout of ``step`` in the thread. Raises RuntimeError if there is one that nobody has taken."""
        if self._begun is not None or self._pending is not None:
            raise RuntimeError(f"a rollout is under way or pending; take it before that of step {step} is begun")
        self._begun = step, self._thread.submit(self._sample, step)

    def wait(self) -> None:
        """Wait until no rollout is under way. Raises what its sampling raised."""
        begun, self._begun = self._begun, None
        if begun is not None:
            self._pending = begun[1].result()

    def learner_turn(self) -> contextlib.AbstractContextManager[None]:
        """Hold this while programs are handed to the devices: the next sampler call comes after them."""
        return self._turns.learner()

    def close(self) -> None:
        """End the thread; what it was sampling is lost."""
        self._stopped.set()
        self._thread.shutdown(cancel_futures=True)

    def _sample(self, step: int) -> Rollout:
        start = time.perf_counter()
        sampled = self._roll_out(_InTurns(self._sampler, self._turns, self._stopped), step)
        self.seconds = time.perf_counter() - start
        return sampled


class _DeviceTurns:
    """Who may hand programs to the devices; the learner goes first.

    Two threads that hand programs to several devices at once could reach them in different orders, and programs that
    exchange data would then wait for each other for ever.
    """

    def __init__(self) -> None:
        self._gate, self._devices = threading.Lock(), threading.Lock()

    @contextlib.contextmanager
    def learner(self) -> Iterator[None]:
        with self._gate, self._devices:
            yield

    @contextlib.contextmanager
    def sampler(self) -> Iterator[None]:
        # A lock alone is not fair: the sampler, which lets it go only to take it again, would keep it for itself.
        with self._gate:
            pass
        with self._devices:
            yield


class _Stopped(Exception):  # noqa: N818  no error: nobody wants the rollout any more
    pass


class _InTurns:
    """The sampler as the thread uses it: each call to the devices in its turn, none after the end."""

    def __init__(self, sampler: TurnSampler, turns: _DeviceTurns, stopped: threading.Event):
        self._sampler, self._turns, self._stopped = sampler, turns, stopped
        self.can_open, self.open_group, self.close_group = sampler.can_open, sampler.open_group, sampler.close_group
        self.room, self.append, self.request = sampler.room, sampler.append, sampler.request

    def step(self) -> list[Turn]:
        with self._turns.sampler():
            if self._stopped.is_set():
                raise _Stopped
            return self._sampler.step()
