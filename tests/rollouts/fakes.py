"""A sampler that speaks from a script, and a pool that answers in its own time: the protocols, without a model."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from rlagents.rollouts.chat import Chat
from rlagents.rollouts.local_pool import LocalPool
from rlagents.sampling.keys import StreamKey
from rlagents.sampling.prompts import split_prompts
from rlagents.sampling.turns import StopReason, Turn

Script = Callable[[int, int, int], str | tuple[str, str]]
"""``(stream, member, turn) -> text``, ended by the template's stop token, or ``(text, ending)``."""


@dataclass
class _Row:
    stream: int
    member: int
    ids: list[int]
    turns: int = 0
    max_new_tokens: int | None = None


@dataclass(frozen=True)
class _Handle:
    serial: int
    rows: tuple[int, ...]


class FakeSampler:
    """Turns come after a random number of steps, in random order; every breach of the protocol is an assertion."""

    version = 7

    def __init__(
        self, chat: Chat, script: Script, *, num_groups=2, num_rows=4, max_member_tokens=10_000, seed=None, stops=False
    ):
        self.chat, self.script, self.max_member_tokens = chat, script, max_member_tokens
        self.num_groups, self.rows, self.random = num_groups, [None] * num_rows, random.Random(seed)
        self.patient, self.stops = seed is not None, stops
        self.handles, self.opened, self.requests, self.finished = [], [], [], []

    def can_open(self, group_size):
        return len(self.handles) < self.num_groups and self.rows.count(None) >= group_size

    def open_group(self, prompts, keys):
        assert self.can_open(len(prompts))
        assert isinstance(keys, StreamKey)
        free = [row for row, held in enumerate(self.rows) if held is None]
        handle = _Handle(len(self.opened), tuple(free[: len(prompts)]))
        for member, (row, tail) in enumerate(zip(handle.rows, split_prompts(prompts)[1])):
            self.rows[row] = _Row(keys.stream, member, list(tail))
        self.handles.append(handle)
        self.opened.append((keys, [list(prompt) for prompt in prompts]))
        return handle

    def close_group(self, handle):
        self.handles.remove(handle)
        for row in handle.rows:
            assert self.stops or self.rows[row].max_new_tokens is None, "closed while a turn is in progress"
            self.finished.append(self.rows[row])
            self.rows[row] = None

    def room(self, row):
        return self.max_member_tokens - len(self.rows[row].ids)

    def append(self, row, token_ids):
        assert self.rows[row].max_new_tokens is None, "busy"
        assert len(token_ids) <= self.room(row)
        self.rows[row].ids += token_ids

    def request(self, row, max_new_tokens):
        assert max_new_tokens >= 1
        assert self.rows[row].max_new_tokens is None, "busy"
        self.rows[row].max_new_tokens = max_new_tokens
        self.requests.append((self.rows[row].stream, self.rows[row].member, max_new_tokens))

    def step(self):
        asked = [row for row, held in enumerate(self.rows) if held is not None and held.max_new_tokens is not None]
        if self.patient:
            asked = [row for row in asked if self.random.random() < 0.4]
            self.random.shuffle(asked)
        return [self._speak(row) for row in asked]

    def _speak(self, number):
        row = self.rows[number]
        said = self.script(row.stream, row.member, row.turns)
        text, ending = said if isinstance(said, tuple) else (said, self.chat.closing[: self.chat.closing.find(">") + 1])
        ids = self.chat.encode(text) + self.chat.encode(ending)
        limit, room = row.max_new_tokens, self.room(number)
        reason = StopReason.STOP_TOKEN if ending.startswith("<|") else StopReason.STOP_STRING
        if len(ids) > min(limit, room):
            ids = ids[: min(limit, room)]
            reason, text = StopReason.LENGTH if limit < room else StopReason.BUDGET, self.chat.decode_text(ids)
        row.ids += ids
        row.turns, row.max_new_tokens = row.turns + 1, None
        log_probs = [-((row.stream * 31 + row.member * 7 + at + token) % 97 + 1) / 32 for at, token in enumerate(ids)]
        return Turn(number, ids, log_probs, reason, text, self.version)


class SlowPool(LocalPool):
    """Hands answers back late and in random order."""

    def __init__(self, environment, seed):
        super().__init__(environment)
        self.random = random.Random(seed)
        self.late = []

    def poll(self, timeout_seconds=0.0):
        self.late += super().poll()
        self.random.shuffle(self.late)
        ready = [self.random.random() < 0.3 for _ in self.late]
        answered = [item for item, is_ready in zip(self.late, ready) if is_ready]
        self.late = [item for item, is_ready in zip(self.late, ready) if not is_ready]
        return answered
