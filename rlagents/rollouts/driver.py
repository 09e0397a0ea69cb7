"""The rollout loop: tasks in, groups of trajectories out. Sampler and environments work at the same time.

    result = rollout(tasks, sampler=sampler, chat=chat, pool=pool, group_size=8, limits=Limits(...), run=0, step=17)
    batch = collate(result.groups, ...)

A group is opened as soon as the sampler has a slot, in stream order. Its members then go their own ways: each asks for
a turn, has it executed in the pool while others are decoded, appends the observation and asks again. Nothing depends on
who is ready first: a member's tokens follow from its own keys and its own environment, and groups come back in stream
order. What may depend on it is the last bit of a log-probability, since rows round differently beside other rows; with
``wait_for_tools`` the sampler goes on only when every answer is there, and nothing at all depends on time.

Where more tasks are drawn than groups are wanted, ``last_needed`` says from the groups that have ended which task is
the last that still matters. The groups behind it give their rows and episodes back at once, and count for nothing.
"""

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
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


LastNeeded = Callable[[Mapping[int, list[Trajectory]]], int | None]
"""From the groups that have ended, by stream index, to the stream index of the last task that matters.

None as long as all of them may. What it once answered may only move towards the stream's beginning.
"""


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
    """Groups in stream order, tasks left out, and counts of what happened (turns cut, observations dropped, faults).

    None of it is about tasks behind the last that mattered, but ``groups_stopped``: how many these were, and what the
    pool had to repair.
    """

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
    last_needed: LastNeeded | None = None,
    wait_for_tools: bool = False,
) -> Rollout:
    """Sample ``group_size`` trajectories for every task, or for every task that matters.

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
      last_needed: asked whenever groups have ended; None where every task matters.
      wait_for_tools: decode only when nothing is asked of the pool any more: the same numbers to the last bit, however
        long tools take, at the price of doing nothing while they run.

    Raises:
      ValueError: no room for a turn after ``forced_prefix``; two tasks with one stream index; from the sampler, a
        prompt within ``limits`` that it has no room for; from ``member_messages``, what it refuses.
      RuntimeError: the sampler has no room for a group of ``group_size``.
    """
    if limits.max_response_tokens <= len(forced_prefix):
        raise ValueError(f"max_response_tokens {limits.max_response_tokens} leaves no room after the forced prefix.")
    if len({task.stream for task in tasks}) != len(tasks):
        raise ValueError("two tasks have the same stream index; their members would draw the same random numbers.")
    setting = Setting(sampler, chat, pool, limits, tuple(forced_prefix))
    loop = _Loop(setting, tasks, group_size, (domain, run, step), member_messages, last_needed, wait_for_tools)
    before = Counter(pool.counts)
    loop.run()
    needed = loop.needed
    counts = sum((loop.counts[task.stream] for task in needed), Counter(pool.counts) - before)
    if len(needed) < len(tasks):
        counts["groups_stopped"] = len(tasks) - len(needed)
    groups = [loop.groups[task.stream] for task in needed if task.stream in loop.groups]
    skipped = [loop.skipped[task.stream] for task in needed if task.stream in loop.skipped]
    members = [trajectory for group in groups for trajectory in group]
    counts["trajectories"] = len(members)
    counts["trajectories_truncated"] = sum(trajectory.truncated for trajectory in members)
    counts["trajectories_lost"] = sum(not trajectory.valid for trajectory in members)
    return Rollout(groups, skipped, counts)


class _Loop:
    """The event loop: answers from the pool and turns from the sampler, each handed to whoever waits for it.

    Attributes:
      needed: the tasks that matter, by all that is known.
      groups: of trajectories, by stream index.
      skipped: tasks that were not sampled, by stream index.
      counts: what happened, by stream index.
    """

    def __init__(
        self,
        setting: Setting,
        tasks: Sequence[StreamTask],
        group_size: int,
        key: tuple[int, int, int],
        member_messages: MemberMessages,
        last_needed: LastNeeded | None,
        wait_for_tools: bool,
    ):
        self.needed = list(tasks)
        self.groups: dict[int, list[Trajectory]] = {}
        self.skipped: dict[int, Skipped] = {}
        self.counts = {task.stream: Counter[str]() for task in tasks}
        self._setting, self._last_needed, self._wait_for_tools = setting, last_needed, wait_for_tools
        self._group_size, self._key, self._member_messages = group_size, key, member_messages
        self._unasked, self._asked = deque(tasks), deque[StreamTask]()
        self._openings: dict[int, Opening | Lost] = {}
        self._sampling: list[Group] = []
        self._waiting: dict[int, tuple[int, Callable[[Any], None]]] = {}  # ticket -> stream index, who waits
        self._num_seen = 0

    def run(self) -> None:
        while self._unasked or self._asked or self._waiting or self._sampling:
            self._ask_openings()
            self._open_groups()
            members = {row: member for group in self._sampling for row, member in group.members.items()}
            for turn in self._setting.sampler.step():
                members[turn.row].answer(turn)
            if self._wait_for_tools:
                self._hear_all()
            else:
                self._hear(any(member.asking for member in members.values()))
            self._sampling = [group for group in self._sampling if not group.sampled]
            self._stop_what_matters_no_more()

    def _hear(self, busy: bool) -> None:
        """Hand over what is there; wait for it only where there is nothing else to do."""
        for ticket, value in self._setting.pool.poll(0.0 if busy else _WAIT_SECONDS):
            _, take = self._waiting.pop(ticket, (None, _nobody))
            take(value)

    def _hear_all(self) -> None:
        """Until nobody waits for anything, and in the order of asking: who was answered first leaves no trace."""
        while self._waiting:
            answers: dict[int, Any] = {}
            while self._waiting.keys() - answers.keys():
                answers |= dict(self._setting.pool.poll(_WAIT_SECONDS))
            for ticket in sorted(self._waiting):
                _, take = self._waiting.pop(ticket)
                take(answers[ticket])

    def _await(self, stream: int, ticket: int, take: Callable[[Any], None]) -> None:
        self._waiting[ticket] = stream, take

    def _ask_openings(self) -> None:
        while self._unasked and len(self._asked) < _AHEAD:
            task = self._unasked.popleft()
            self._asked.append(task)
            take = partial(self._openings.__setitem__, task.stream)
            self._await(task.stream, self._setting.pool.opening(task.task), take)

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
        # Of its own: what a group leaves behind when it is stopped is known by its stream index.
        setting = dataclasses.replace(
            self._setting, counts=self.counts[task.stream], await_ticket=partial(self._await, task.stream)
        )
        take = partial(self.groups.__setitem__, task.stream)
        group = Group(setting, task.task, keys, opening, conversations, conditions, take)
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
        self.counts[task.stream][count] += 1
        self.skipped[task.stream] = Skipped(task.stream, task.task.id, reason)

    def _stop_what_matters_no_more(self) -> None:
        if self._last_needed is None or len(self.groups) == self._num_seen:
            return
        self._num_seen = len(self.groups)
        last = self._last_needed(
            {task.stream: self.groups[task.stream] for task in self.needed if task.stream in self.groups}
        )
        if last is None:
            return
        self.needed = self.needed[: 1 + [task.stream for task in self.needed].index(last)]
        needed = {task.stream for task in self.needed}
        for group in self._sampling:
            if group.stream not in needed:
                group.stop()
        self._sampling = [group for group in self._sampling if group.stream in needed]
        self._unasked = deque(task for task in self._unasked if task.stream in needed)
        self._asked = deque(task for task in self._asked if task.stream in needed)
        # What the others were waiting for may come at any time; nobody takes it.
        self._waiting = {ticket: waiter for ticket, waiter in self._waiting.items() if waiter[0] in needed}


def _nobody(_: Any) -> None:
    """Nobody waits for the start of an episode, nor for what a stopped group has asked for."""
