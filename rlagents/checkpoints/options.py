"""What a config says of checkpoints."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from rlagents.argument_checks import check_whole
from rlagents.checkpoints.errors import CheckpointError


@dataclasses.dataclass(frozen=True)
class CheckpointOptions:
    """The section ``checkpoint`` of a config.

    Attributes:
      every_steps: steps between two checkpoints, of either phase; there is one after the last step in any case.
      keep_last: the newest that are kept.
      keep_best: besides, those with the highest ``best_metric``, among checkpoints of steps that were evaluated.
      best_metric: a name in ``evaluations.jsonl``; higher is better.
      restore_from: the folder of a run, of its checkpoints or of one checkpoint, whose weights this run begins with
        instead of the experiment's own; "" for none.
    """

    every_steps: int
    keep_last: int = 3
    keep_best: int = 0
    best_metric: str = "success"
    restore_from: str = ""

    def __post_init__(self):
        """Raises ValueError for what is no count or no text."""
        for name, lowest in (("every_steps", 1), ("keep_last", 1), ("keep_best", 0)):
            check_whole(f"checkpoint.{name}", getattr(self, name), lowest)
        if not isinstance(self.best_metric, str) or not self.best_metric:
            raise ValueError(
                f"checkpoint.best_metric is {self.best_metric!r}; give a name in evaluations.jsonl, such as 'success'."
            )
        if not isinstance(self.restore_from, str):
            raise ValueError(
                f"checkpoint.restore_from is {self.restore_from!r}; give the folder of a run or checkpoint, or ''."
            )

    def retention(self) -> dict[str, Any]:
        """What :class:`rlagents.checkpoints.Checkpoints` takes of it."""
        return {"keep_last": self.keep_last, "keep_best": self.keep_best, "best_metric": self.best_metric}

    def check_metric(self, values: Mapping[str, float]) -> None:
        """Raise CheckpointError unless an evaluation's ``values`` have what the best are chosen by."""
        if self.keep_best and self.best_metric not in values:
            raise CheckpointError(
                f"checkpoint.best_metric is {self.best_metric!r}, which an evaluation does not give; it gives "
                f"{', '.join(values)}."
            )
