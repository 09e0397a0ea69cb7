"""The rollout loop: tasks in, groups of trajectories out. Sampler and environments work at the same time.

    result = rollout(tasks, sampler=sampler, chat=chat, pool=pool, group_size=8, limits=Limits(...), run=0, step=17)
    batch = collate(result.groups, ...)

A group is opened as soon as the sampler has a slot, in stream order. Its members then go their own ways: each asks for
a turn, has it executed in the pool while others are decoded, appends the observation and asks again. Nothing depends on
who is ready first: a member's tokens follow from its own keys and its own environment, and groups come back in stream
order.
"""

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from rlagents.facts import Opening, Task
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.conditions import MemberMessages, Place, same_for_all
from rlagents.rollouts.conversation import Conversation
from rlagents.rollouts.faults import Lost
from rlagents.rollouts.groups import Group
from rlagents.rollouts.members import Limits, Setting, TurnSampler
from rlagents.rollouts.pool import Pool
from rlagents.rollouts.trajectory import Trajectory
from rlagents.sampling.keys import Domain, StreamKey

# Openings asked for ahead of the group that is to be opened next.
_AHEAD = 16
_WAIT_SECONDS = 1.0


class StreamTask(NamedTuple):
    """A task and its index in the prompt stream, which its random numbers are drawn from."""

    stream: int
    task: Task


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A task that was not sampled, and why."""

    stream: int
    task_id: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Rollout:
    """Groups in stream order, tasks left out, and counts of what happened (turns cut, observations dropped, faults)."""

    groups: list[list[Trajectory]]
    skipped: list[Skipped]
    counts: Counter[str]


def rollout(
    tasks: Sequence[StreamTask],
    *,
    sampler: TurnSampler,
    chat: Chat,
    pool: Pool,
    group_size: int,
    limits: Limits,
    run: int,
    step: int,
    domain: int = Domain.TRAIN,
    member_messages: MemberMessages = same_for_all,
    forced_prefix: Sequence[int] = (),
) -> Rollout:
    """Sample ``group_size`` trajectories for every task.

    Args:
      tasks: in stream order.
      sampler: holds the policy's weights; all its slots should be free.
      chat: tokenizer and template.
      pool: runs the environment.
      group_size: members of each group.
      limits: budgets of each trajectory.
      run: seed of the run, first part of every random key.
      step: number of the rollout batch, second part.
      domain: training or evaluation.
      member_messages: what the policy is shown as each member's opening, and the member's condition.
      forced_prefix: token ids that every model turn is made to begin with (kind FORCED).

    Raises:
      ValueError: no room for a turn after ``forced_prefix``; two tasks with one stream index; from the sampler, a
        prompt within ``limits`` that it has no room for; from ``member_messages``, what it refuses.
      RuntimeError: the sampler has no room for a group of ``group_size``.
    """
    if limits.max_response_tokens <= len(forced_prefix):
        raise ValueError(f"max_response_tokens {limits.max_response_tokens} leaves no room after the forced prefix.")
    if len({task.stream for task in tasks}) != len(tasks):
        raise ValueError("two tasks have the same stream index; their members would draw the same random numbers.")
    waiting: dict[int, Callable[[Any], None]] = {}
    counts = Counter[str]()
    setting = Setting(sampler, chat, pool, limits, tuple(forced_prefix), counts, waiting.__setitem__)
    loop = _Loop(setting, waiting, tasks, group_size, (domain, run, step), member_messages)
    before = Counter(pool.counts)
    loop.run()
    counts.update(Counter(pool.counts) - before)
    groups = [loop.groups[task.stream] for task in tasks if task.stream in loop.groups]
    members = [trajectory for group in groups for trajectory in group]
    counts["trajectories"] = len(members)
    counts["trajectories_truncated"] = sum(trajectory.truncated for trajectory in members)
    counts["trajectories_lost"] = sum(not trajectory.valid for trajectory in members)
    return Rollout(groups, loop.skipped, counts)


class _Loop:
    """The event loop: answers from the pool and turns from the sampler, each handed to whoever waits for it."""

    def __init__(
        self,
        setting: Setting,
        waiting: dict[int, Callable[[Any], None]],
        tasks: Sequence[StreamTask],
        group_size: int,
        key: tuple[int, int, int],
        member_messages: MemberMessages,
    ):
        self.groups: dict[int, list[Trajectory]] = {}
        self.skipped: list[Skipped] = []
        self._setting, self._waiting = setting, waiting
        self._group_size, self._key, self._member_messages = group_size, key, member_messages
        self._unasked, self._asked = deque(tasks), deque[StreamTask]()
        self._openings: dict[int, Opening | Lost] = {}
        self._sampling: list[Group] = []

    def run(self) -> None:
        while self._unasked or self._asked or self._waiting or self._sampling:
            self._ask_openings()
            self._open_groups()
            members = {row: member for group in self._sampling for row, member in group.members.items()}
            for turn in self._setting.sampler.step():
                members[turn.row].answer(turn)
            busy = any(member.asking for member in members.values())
            for ticket, value in self._setting.pool.poll(0.0 if busy else _WAIT_SECONDS):
                self._waiting.pop(ticket, _nobody)(value)
            self._sampling = [group for group in self._sampling if not group.sampled]

    def _ask_openings(self) -> None:
        while self._unasked and len(self._asked) < _AHEAD:
            task = self._unasked.popleft()
            self._asked.append(task)
            take = partial(self._openings.__setitem__, task.stream)
            self._setting.await_ticket(self._setting.pool.opening(task.task), take)

    def _open_groups(self) -> None:
        """In stream order: a task whose opening is ready waits for the one before it."""
        while self._asked and self._asked[0].stream in self._openings:
            if not self._setting.sampler.can_open(self._group_size):
                if not self._sampling:
                    raise RuntimeError(f"the sampler has no room for a group of {self._group_size}; give it more rows.")
                return
            task = self._asked.popleft()
            opening = self._openings.pop(task.stream)
            if isinstance(opening, Lost):
                self._skip(task, "openings_lost", opening.reason)
            else:
                self._open(task, opening)

    def _open(self, task: StreamTask, opening: Opening) -> None:
        keys = StreamKey(*self._key, task.stream)
        conversations, conditions = self._converse(task.task, opening, keys)
        longest, limit = max(c.prompt_length for c in conversations), self._setting.limits.max_prompt_tokens
        if longest > limit:
            return self._skip(
                task, "prompts_too_long", f"its prompt has {longest} tokens; max_prompt_tokens is {limit}"
            )
        take = partial(self.groups.__setitem__, task.stream)
        group = Group(self._setting, task.task, keys, opening, conversations, conditions, take)
        self._sampling.append(group)
        return group.begin()

    def _converse(self, task: Task, opening: Opening, keys: StreamKey) -> tuple[list[Conversation], list[int]]:
        """A conversation a member; equal openings are tokenised once."""
        conversations: list[Conversation] = []
        conditions: list[int] = []
        for member in range(self._group_size):
            messages, condition = self._member_messages(task, opening, Place(keys, member, self._group_size))
            said = [dict(message) for message in messages]
            twin = next((other for other in conversations if other.messages == said), None)
            new = Conversation(self._setting.chat, said, opening.tools) if twin is None else twin.fork()
            conversations.append(new)
            conditions.append(condition)
        return conversations, conditions

    def _skip(self, task: StreamTask, count: str, reason: str) -> None:
        self._setting.counts[count] += 1
        self.skipped.append(Skipped(task.stream, task.task.id, reason))


def _nobody(_: Any) -> None:
    """Nobody waits for the start of an episode: its first step or its record tells what went wrong."""
