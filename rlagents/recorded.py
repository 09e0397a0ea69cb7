"""Recorded demonstrations as the tasks of a warm-up: what is read from a dataset is played again, and imitated.

    recorded = Recorded(read_demonstrations(folder, "rctp", "train"), tasks, environment)
    Experiment(..., demonstrate=demonstrated, supervised_stream=recorded.stream, demonstrated_messages=goal_messages())

Each row is a task of its own, so one task may be shown twice, solved with the high reward and failed with the low one.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlagents.data.demonstrations import DemonstrationRow
from rlagents.data.streams import PromptStream
from rlagents.environments.base import Environment
from rlagents.environments.replay import play
from rlagents.facts import Task
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.conditions import ConditionMessages
from rlagents.rollouts.episodes import ENVIRONMENT_ERRORS
from rlagents.rollouts.experts import Demonstration, expert_trajectory

_SHOWN = "demonstration"
"""Key of a task's payload."""


def demonstrated(task: Task, step: int) -> Demonstration:
    """What was recorded for a task of :meth:`Recorded.stream`, at every step: a ``Demonstrator``.

    Raises ValueError for any other task.
    """
    del step
    shown = task.payload.get(_SHOWN)
    if not isinstance(shown, Demonstration):
        raise ValueError(
            f"nothing was recorded for task {task.id!r}; give its experiment the supervised_stream of a Recorded."
        )
    return shown


@dataclass(frozen=True)
class Recorded:
    """Rows of a dataset and what they were made in.

    Attributes:
      rows: at least one.
      tasks: id -> task, of every row at least.
      environment: what they are played in; runs in this process.
    """

    rows: Sequence[DemonstrationRow]
    tasks: Mapping[str, Task]
    environment: Environment

    def __len__(self) -> int:
        return len(self.rows)

    def stream(self, position: int) -> PromptStream[Task]:
        """The tasks of the rows, in the order of the dataset, again and again.

        Raises ValueError where there is no row, or one that is not what it says (see :meth:`replayed`).
        """
        tasks = self.replayed
        return PromptStream(lambda index: tasks[index % len(tasks)], position=position)

    @functools.cached_property
    def replayed(self) -> Sequence[Task]:
        """A task for each row, whose payload has its demonstration; made when first asked for.

        Every row is played: its episode has to end where it says, with the reward 1 if and only if it names no cause
        of failure. Raises ValueError for the first row that does not, or whose task is unknown.
        """
        if not self.rows:
            raise ValueError("there are no recorded demonstrations; give at least one row.")
        return [self._replayed(number, row) for number, row in enumerate(self.rows)]

    def fitting(
        self, chat: Chat, shown: ConditionMessages, *, max_prompt_tokens: int, max_response_tokens: int
    ) -> "Recorded":
        """Those rows that are no longer than a warm-up's buckets hold, in their order; ``len`` tells how many are left.

        Args:
          chat: tokenizer and template.
          shown: opening messages of a demonstration's condition.
          max_prompt_tokens: tokens of the opening.
          max_response_tokens: tokens of all that follows it, the environment's included.

        Raises ValueError if no row is left, and as :meth:`stream` and ``expert_trajectory`` do.
        """
        rows = []
        for row, task in zip(self.rows, self.replayed, strict=True):
            trace = expert_trajectory(self.environment, chat, task, demonstrated(task, 0), stream=0, shown=shown)
            if len(trace.prompt_ids) <= max_prompt_tokens and len(trace.token_ids) <= max_response_tokens:
                rows.append(row)
        if not rows:
            raise ValueError(
                f"none of {len(self)} recorded demonstrations has a prompt of {max_prompt_tokens} tokens or less and "
                f"{max_response_tokens} or less after it; give the warm-up longer buckets."
            )
        return dataclasses.replace(self, rows=rows)

    def _replayed(self, number: int, row: DemonstrationRow) -> Task:
        task = self.tasks.get(row.task_id)
        if task is None:
            raise ValueError(f"row {number} is of task {row.task_id!r}, which is none of the {len(self.tasks)} tasks.")
        try:
            played = play(self.environment, task, row.texts)
        except ENVIRONMENT_ERRORS as error:
            raise ValueError(self._otherwise(number, row, f"{type(error).__name__}: {error}")) from error
        solved = played.outcome.reward == 1.0
        if (solved, played.ends) != (not row.cause, row.ends):
            found = f"it earns {played.outcome.reward:g}, and its episode is {'' if played.ends else 'not '}over"
            raise ValueError(self._otherwise(number, row, found))
        shown = Demonstration(row.texts, row.ends, row.condition)
        return Task(f"{task.id}#{number}", {**task.payload, _SHOWN: shown})

    def _otherwise(self, number: int, row: DemonstrationRow, found: str) -> str:
        return (
            f"row {number} (task {row.task_id!r}, {row.source}, {row.cause or 'solved'}) is played otherwise than it "
            f"was recorded: {found}. Was the dataset made for another way of asking, or of writing calls? Make it anew."
        )
