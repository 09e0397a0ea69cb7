"""All that a run writes of its steps, evaluations and alarms, wherever it goes: one call a line."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlagents.argument_checks import check_above, check_flag
from rlagents.metrics.lines import JsonLines, json_number, max_bytes_of
from rlagents.metrics.wandb_run import WandbRun, check_login, check_wandb
from rlagents.metrics.writer import MetricsWriter


class RunLog:
    """``metrics.jsonl``, ``evaluations.jsonl`` and ``alarms.jsonl``; TensorBoard's files and a W&B run if asked for.

    The names of metrics are the same everywhere. TensorBoard shows each file of lines as a run of its own
    (``tensorboard/metrics``, ``tensorboard/evaluations``); in Weights & Biases, which has one run for both, names of
    the evaluations begin with ``evaluations/``.
    """

    def __init__(
        self,
        workdir: Path,
        config: Mapping[str, Any],
        *,
        first_step: int = 0,
        tensorboard: bool = False,
        wandb: str = "",
        max_megabytes: float = 64.0,
    ):
        """Continue what ``workdir`` holds with ``first_step``; what a killed run wrote of it and later is taken back.

        Args:
          workdir: of the run.
          config: shown by Weights & Biases.
          first_step: number of the next line of metrics; the evaluation before it, if any, is done.
          tensorboard: write event files into ``workdir/tensorboard``.
          wandb: project to log to, "" for none.
          max_megabytes: of 2**20 bytes; a file of lines that would grow larger is rotated.

        Raises:
          ModuleNotFoundError: ``wandb`` names a project and the library is not installed.
          ValueError: a value that is none of its kind.
        """
        check_logging(tensorboard=tensorboard, wandb=wandb, max_megabytes=max_megabytes)
        max_bytes = max_bytes_of(max_megabytes)
        after = first_step + bool(first_step)  # an evaluation comes before the checkpoint that a run goes on from
        with contextlib.ExitStack() as stack:
            self._metrics = stack.enter_context(
                MetricsWriter(workdir / "metrics.jsonl", first_step=first_step, max_bytes=max_bytes)
            )
            self._evaluations = stack.enter_context(
                MetricsWriter(workdir / "evaluations.jsonl", first_step=after, max_bytes=max_bytes)
            )
            self._alarms = stack.enter_context(
                JsonLines(workdir / "alarms.jsonl", first_step=first_step, max_bytes=max_bytes)
            )
            self._metric_logs, self._evaluation_logs = [self._metrics.write], [self._evaluations.write]
            if tensorboard:
                # Only here: the library takes in torch, where that is installed, and 200 MB with it.
                from rlagents.metrics.tensorboard import TensorBoardWriter

                for name, first, logs in (
                    ("metrics", first_step, self._metric_logs),
                    ("evaluations", after, self._evaluation_logs),
                ):
                    board = TensorBoardWriter(workdir / "tensorboard" / name, first_step=first)
                    stack.enter_context(contextlib.closing(board))
                    logs.append(board.write)
            if wandb:
                run = stack.enter_context(contextlib.closing(WandbRun(wandb, workdir, config)))
                self._metric_logs.append(run.metrics)
                self._evaluation_logs.append(run.evaluation)
            self._open = stack.pop_all()

    def metrics(self, step: int, values: Mapping[str, Any]) -> None:
        """Write the metrics of ``step``."""
        for log in self._metric_logs:
            log(step, values)

    def evaluation(self, step: int, values: Mapping[str, Any]) -> None:
        """Write what an evaluation after ``step`` steps came to."""
        for log in self._evaluation_logs:
            log(step, values)

    def alarm(self, step: int, alarm: str, value: float, threshold: float, message: str) -> None:
        """Write that an alarm was raised."""
        numbers = {name: json_number(name, x) for name, x in (("value", value), ("threshold", threshold))}
        self._alarms.write({"step": step, "alarm": alarm} | numbers | {"message": message})

    def close(self) -> None:
        """Close all files and end what runs."""
        self._open.close()

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def check_logging(*, tensorboard: bool = False, wandb: str = "", max_megabytes: float = 64.0) -> None:
    """Raise what :class:`RunLog` would: ValueError or ModuleNotFoundError, in a line that begins with the name."""
    check_flag("tensorboard", tensorboard)
    if not isinstance(wandb, str):
        raise ValueError(f"wandb is {wandb!r}; give the name of a project, or '' to log without Weights & Biases.")
    check_above("max_megabytes", max_megabytes, 0)
    if wandb:
        check_wandb()


def check_reachable(*, tensorboard: bool = False, wandb: str = "", max_megabytes: float = 64.0) -> None:
    """Raise ConfigError where a run would log to what it cannot reach. Asks the network; nothing is written."""
    del tensorboard, max_megabytes
    if wandb:
        check_login()
