"""A Weights & Biases run that a resumed run continues: the same names, every step once."""

import contextlib
import importlib
import inspect
import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from rlagents.durable import write_durably
from rlagents.metrics.lines import json_number
from rlagents.problems import ConfigError

INSTALL = "pip install wandb"


def check_wandb() -> None:
    """Raise ModuleNotFoundError, saying what to do, where the library, or one that it needs, is not installed."""
    try:
        importlib.import_module("wandb")
    except ModuleNotFoundError as error:
        missing = "its library" if error.name == "wandb" else f"{error.name}, which its library needs,"
        raise ModuleNotFoundError(
            f"wandb names a project of Weights & Biases, but {missing} is not installed; install it ({INSTALL}), or "
            "give wandb='' to log without it."
        ) from error


def check_login() -> None:
    """Raise ConfigError, saying what to do, unless the library could begin a run: logged in, or told to stay offline.

    Nobody is asked for a key. A library too old to look without asking is believed.
    """
    library = importlib.import_module("wandb")
    if library.setup().settings.mode in ("offline", "disabled", "dryrun"):
        return
    if "prompt" not in inspect.signature(library.login).parameters:
        return
    with _told(library):
        if not library.login(prompt=False):
            raise library.Error("there is no login")


@contextlib.contextmanager
def _told(library: ModuleType) -> Iterator[None]:
    """Say in a line what the library refuses, and what to do."""
    try:
        yield
    except library.Error as error:
        said = str(error).strip().partition("\n")[0].rstrip(".")
        raise ConfigError(
            [
                f"logging.wandb names a project of Weights & Biases, which cannot be logged to ({said}); run wandb "
                "login, set WANDB_MODE=offline to log to the workdir alone, or give logging.wandb=''."
            ]
        ) from error


class WandbRun:
    """The run of a workdir. Its id lies in the workdir, so that who copies or moves the folder continues it."""

    def __init__(self, project: str, workdir: Path, config: Mapping[str, Any]):
        """Begin the run of ``workdir`` in ``project``, or continue it.

        Raises ModuleNotFoundError where the library is not installed, ConfigError where it cannot begin a run.
        """
        check_wandb()
        library = importlib.import_module("wandb")
        with _told(library):
            self._run = library.init(
                project=project,
                id=_id_of(workdir),
                resume="allow",
                name=workdir.resolve().name,
                dir=str(workdir),
                config=json.loads(json.dumps(config, default=str)),
            )
        # Every chart is drawn over the step of the lines; the library's own counter has room for two lines a step.
        self._run.define_metric("*", step_metric="step")
        self._next = int(self._run.step)

    def metrics(self, step: int, values: Mapping[str, Any]) -> None:
        """Log a line of ``metrics.jsonl``, which tells what the step after ``step`` steps did."""
        self._log(2 * step + 1, step, values)

    def evaluation(self, step: int, values: Mapping[str, Any]) -> None:
        """Log a line of ``evaluations.jsonl``, after ``step`` steps and before the next; names begin with its own."""
        self._log(2 * step, step, {f"evaluations/{name}": value for name, value in values.items()})

    def close(self) -> None:
        """End the run; a resumed one takes it up again."""
        self._run.finish()

    def _log(self, number: int, step: int, values: Mapping[str, Any]) -> None:
        # A step that is made again after a resume is the step that was made, and there already.
        if number >= self._next:
            # Charts of the library know what is not finite as numbers, not as the names that JSON needs.
            numbers = {name: float(json_number(name, value)) for name, value in values.items()}
            self._run.log({"step": step} | numbers, step=number)


def _id_of(workdir: Path) -> str:
    path = workdir / "wandb_id"
    if not path.exists():
        write_durably(path, f"{uuid.uuid4().hex}\n".encode())
    return path.read_text(encoding="utf-8").strip()
