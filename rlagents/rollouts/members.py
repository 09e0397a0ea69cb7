"""One member of a group while it is sampled: what follows a finished turn, what follows an observation."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rlagents.facts import Opening, Outcome, Task, Transcript, TurnFacts
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.conversation import Conversation
from rlagents.rollouts.faults import Lost, Stepped
from rlagents.rollouts.pool import Pool
from rlagents.rollouts.trajectory import Trajectory, token_fields
from rlagents.sampling.keys import StreamKey
from rlagents.sampling.turns import StopReason, Turn


class TurnSampler(Protocol):
    """What is used of :class:`rlagents.sampling.sampler.Sampler`."""

    def can_open(self, group_size: int) -> bool: ...  # noqa: D102
    def open_group(self, prompts: Sequence[Sequence[int]], keys: StreamKey) -> Any: ...  # noqa: D102
    def room(self, row: int) -> int: ...  # noqa: D102
    def append(self, row: int, token_ids: Sequence[int]) -> None: ...  # noqa: D102
    def request(self, row: int, max_new_tokens: int) -> None: ...  # noqa: D102
    def step(self) -> list[Turn]: ...  # noqa: D102
    def close_group(self, handle: Any) -> None: ...  # noqa: D102


@dataclasses.dataclass(frozen=True)
class Limits:
    """Budgets of one trajectory.

    Attributes:
      max_turns: model turns; one that is not over after them is truncated.
      max_turn_tokens: tokens of one model turn; a turn that reaches them is not executed, and truncates.
      max_response_tokens: all tokens after the prompt, observations and forced tokens included. An observation that
        leaves no room for another turn is dropped whole, and truncates.
      max_prompt_tokens: a task whose opening is longer is skipped, counted and reported.
    """

    max_turns: int
    max_turn_tokens: int
    max_response_tokens: int
    max_prompt_tokens: int

    def __post_init__(self):
        for name, value in dataclasses.asdict(self).items():
            if value < 1:
                raise ValueError(f"{name} is {value}; give a whole number >= 1.")


@dataclasses.dataclass(frozen=True)
class Setting:
    """What members share: a rollout's all but the last two, a group's those too.

    ``await_ticket(ticket, call)``: call with the value once it is there.
    """

    sampler: TurnSampler
    chat: Chat
    pool: Pool
    limits: Limits
    forced_prefix: Sequence[int]
    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    await_ticket: Callable[[int, Callable[[Any], None]], None] = lambda ticket, call: None


class Member:
    """Drives one conversation from its opening to its record; ``ended()`` is called when the row is needed no more.

    ``recorded()`` is called when the transcript is complete (or the episode lost), always after ``ended()``.
    """

    def __init__(
        self,
        setting: Setting,
        task: Task,
        opening: Opening,
        conversation: Conversation,
        condition: int,
        row: int,
        ended: Callable[[], None],
        recorded: Callable[[], None],
    ):
        self._setting, self._opening, self._conversation = setting, opening, conversation
        self._condition, self._row = condition, row
        self._ended, self._recorded = ended, recorded
        self._turn_facts: list[TurnFacts] = []
        self._stop_reasons: list[StopReason] = []
        self._weight_versions: list[int] = []
        self._truncated = False
        self._record: Any = None
        self._over = False
        self._episode = setting.pool.start(task)  # what goes wrong there, the first step or the record will tell
        self.asking = False
        """Whether the sampler owes it a turn."""
        self.lost: str | None = None

    def ask(self) -> None:
        """Ask for the next model turn, or end the trajectory where there is no room for one."""
        forced = self._setting.forced_prefix
        if self._room() <= len(forced):
            return self._end(truncated=True)
        if forced:
            self._setting.sampler.append(self._row, forced)
            self._conversation.force(forced)
        self.asking = True
        return self._setting.sampler.request(self._row, min(self._setting.limits.max_turn_tokens, self._room()))

    def answer(self, turn: Turn) -> None:
        """A model turn came: execute it if it is whole."""
        self.asking = False
        text = self._setting.chat.decode_text(self._setting.forced_prefix) + turn.text
        self._conversation.add_turn(turn.token_ids, turn.log_probs, text)
        self._stop_reasons.append(turn.stop_reason)
        self._weight_versions.append(turn.weight_version)
        self._setting.counts["model_turns"] += 1
        if turn.stop_reason in (StopReason.LENGTH, StopReason.BUDGET):
            self._setting.counts["turns_cut"] += 1
            self._turn_facts.append(TurnFacts(void=True))
            self._end(truncated=True)
        else:
            self._setting.await_ticket(self._setting.pool.step(self._episode, text), self._observe)

    def stop(self) -> None:
        """Give the episode back where it is not over: nobody will ask what became of the member."""
        if not self._over:
            self._setting.pool.abandon(self._episode)

    def transcript(self) -> Transcript:
        """For the group's score: the environment's own opening, whatever the policy was shown, and what followed."""
        messages = [*(dict(message) for message in self._opening.messages), *self._conversation.said]
        return Transcript(messages, self._turn_facts, self._truncated, self._record)

    def trajectory(self, task: Task, stream: int, member: int, outcome: Outcome | None, lost: str | None) -> Trajectory:
        """All of it, once the group is scored."""
        return Trajectory(
            task_id=task.id,
            stream=stream,
            member=member,
            condition=self._condition,
            **token_fields(self._conversation),
            turn_facts=self._turn_facts,
            stop_reasons=self._stop_reasons,
            weight_versions=self._weight_versions,
            outcome=outcome,
            truncated=self._truncated,
            lost=lost,
        )

    def _room(self) -> int:
        """Tokens that may still follow."""
        used = len(self._conversation.buffer) - self._conversation.prompt_length
        return min(self._setting.limits.max_response_tokens - used, self._setting.sampler.room(self._row))

    def _observe(self, stepped: Stepped | Lost) -> None:
        if isinstance(stepped, Lost):
            self._turn_facts.append(TurnFacts())
            self._setting.pool.abandon(self._episode)
            return self._lose(stepped.reason)
        if stepped.fault is not None:
            self._setting.counts[f"tool_{stepped.fault.value}"] += 1
        observation = stepped.observation
        self._turn_facts.append(observation.turn)
        if observation.done:
            # No model turn follows, so no token need: the buffer ends with the model's last.
            self._conversation.messages.extend(dict(message) for message in observation.messages)
            return self._end(truncated=False)
        if self._conversation.num_turns >= self._setting.limits.max_turns:
            self._setting.counts["turn_limit_reached"] += 1
            return self._end(truncated=True)
        continuation = self._conversation.continuation(observation.messages)
        if len(continuation.token_ids) + len(self._setting.forced_prefix) >= self._room():
            self._setting.counts["observations_dropped"] += 1
            return self._end(truncated=True)
        self._setting.sampler.append(self._row, continuation.token_ids)
        self._conversation.append(continuation)
        return self.ask()

    def _end(self, *, truncated: bool) -> None:
        self._truncated, self._over = truncated, True
        self._ended()
        self._setting.await_ticket(self._setting.pool.finish(self._episode), self._take_record)

    def _take_record(self, record: Any) -> None:
        if isinstance(record, Lost):
            self.lost = record.reason
        else:
            self._record = record
        self._recorded()

    def _lose(self, reason: str) -> None:
        self.lost, self._over = reason, True
        self._ended()
        self._recorded()
