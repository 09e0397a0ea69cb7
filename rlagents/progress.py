"""What a terminal shows of a run: step, reward, tokens a second, time left, and alarms."""

import time
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class PlainProgress:
    """One line a step, for logs and pipes: step, reward, tokens a second, time left, alarms that are on."""

    def __init__(self, total_steps: int, stream: TextIO, *, first_step: int = 0):
        self._total, self._stream = total_steps, stream
        self._pace = _Pace(total_steps, first_step)

    def show(self, step: int, *, reward: float, tokens_per_second: float, alarms: Sequence[str] = ()) -> None:
        """Report that ``step`` (counted from 0) is done, and which alarms are on."""
        left = clock(self._pace.seconds_left(step))
        line = f"step {step + 1}/{self._total}  reward {reward:.3f}  {tokens_per_second:,.0f} tokens/s  {left} left"
        self.tell("  ".join([line, *_shown(alarms)]))

    def tell(self, line: str) -> None:
        """Write a line between the others."""
        print(line, file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing to restore on a plain stream."""


class RichProgress:
    """The same as a bar that stays in place."""

    def __init__(self, total_steps: int, stream: TextIO, *, first_step: int = 0):
        self._bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("reward {task.fields[reward]:.3f}  {task.fields[tokens_per_second]:,.0f} tokens/s"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[alarms]}", style="bold red", markup=False),
            console=Console(file=stream),
        )
        self._task = self._bar.add_task(
            "", total=total_steps, completed=first_step, reward=0.0, tokens_per_second=0.0, alarms=""
        )
        self._bar.start()

    def show(self, step: int, *, reward: float, tokens_per_second: float, alarms: Sequence[str] = ()) -> None:
        """Report that ``step`` (counted from 0) is done, and which alarms are on."""
        shown = "  ".join(_shown(alarms))
        self._bar.update(
            self._task, completed=step + 1, reward=reward, tokens_per_second=tokens_per_second, alarms=shown
        )

    def tell(self, line: str) -> None:
        """Write a line above the bar."""
        self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._bar.stop()


def progress(total_steps: int, stream: TextIO, *, first_step: int = 0) -> PlainProgress | RichProgress:
    """Return a bar on a terminal, plain lines elsewhere. An earlier run made the steps before ``first_step``."""
    return (RichProgress if stream.isatty() else PlainProgress)(total_steps, stream, first_step=first_step)


def _shown(alarms: Sequence[str]) -> list[str]:
    return [f"ALARM {', '.join(alarms)}"] if alarms else []


class _Pace:
    def __init__(self, total_steps: int, first_step: int):
        self._total, self._first, self._start = total_steps, first_step, time.perf_counter()

    def seconds_left(self, step: int) -> float:
        per_step = (time.perf_counter() - self._start) / max(1, step + 1 - self._first)
        return per_step * max(0, self._total - step - 1)


def clock(seconds: float) -> str:
    """Write a duration as ``12s``, ``3m20s`` or ``2h05m``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
