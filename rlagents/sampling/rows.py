"""What the host knows of prefix slots and rows: who holds which, how much of it has KV, and the turn in progress."""

import dataclasses
from collections.abc import Sequence

from rlagents.sampling.keys import StreamKey
from rlagents.sampling.progress import Progress
from rlagents.sampling.prompts import split_prompts


@dataclasses.dataclass(frozen=True)
class GroupHandle:
    """An open group: its prefix slot and one row a member."""

    slot: int
    rows: tuple[int, ...]
    serial: int
    """Number of the group since the sampler was made: slots and rows are used again, serials never."""


@dataclasses.dataclass
class Row:
    """An open row. Its own tokens are ``length`` tokens that have KV, then ``unfed``, never empty."""

    slot: int
    material: tuple[int, ...]
    unfed: list[int]
    length: int = 0
    turn: Progress | None = None

    @property
    def total(self) -> int:
        """How many tokens of its own it holds."""
        return self.length + len(self.unfed)

    def feed(self, count: int) -> list[int]:
        """The next ``count`` un-fed tokens, which get KV now; at least one stays."""
        fed, self.unfed = self.unfed[:count], self.unfed[count:]
        self.length += len(fed)
        return fed

    def sampled(self, token_ids: list[int]) -> None:
        """A block fed the un-fed token and all of ``token_ids`` but the last."""
        if token_ids:
            self.length += len(token_ids)
            self.unfed = token_ids[-1:]

    def go_back(self, dropped: int, last_token: int) -> None:
        """Forget the ``dropped`` newest tokens; ``last_token`` is the one before them."""
        self.length -= dropped
        self.unfed = [last_token]


class Table:
    """Slots and rows, free and held.

    Args:
      num_groups: prefix slots.
      num_rows: member rows.
      max_prefix_tokens: room of a slot; 0 means that nothing is shared and whole prompts belong to members.
      max_member_tokens: room of a row.
    """

    def __init__(self, *, num_groups: int, num_rows: int, max_prefix_tokens: int, max_member_tokens: int):
        self.max_prefix_tokens = max_prefix_tokens
        self.max_member_tokens = max_member_tokens
        self.prefixes: list[list[int]] = [[] for _ in range(num_groups)]
        self.rows: list[Row | None] = [None] * num_rows
        self._groups: dict[int, GroupHandle] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._groups)

    def can_open(self, group_size: int) -> bool:
        """Whether a slot and ``group_size`` rows are free."""
        return len(self._groups) < len(self.prefixes) and self.rows.count(None) >= group_size

    def open(self, prompts: Sequence[Sequence[int]], keys: StreamKey) -> GroupHandle:
        """Give a group a slot and rows. Raises ValueError if it can never fit, RuntimeError if it cannot now."""
        prefix, tails = split_prompts(prompts, share=self.max_prefix_tokens > 0)
        self._check_sizes(prefix, tails)
        if not self.can_open(len(tails)):
            raise RuntimeError(
                f"no room for a group of {len(tails)}: {len(self.prefixes) - len(self._groups)} slots and "
                f"{self.rows.count(None)} rows are free; ask can_open first, or close a finished group"
            )
        slot = next(slot for slot in range(len(self.prefixes)) if slot not in self._groups)
        free = [number for number, row in enumerate(self.rows) if row is None]
        handle = GroupHandle(slot, tuple(free[: len(tails)]), self._serial)
        self._serial += 1
        self._groups[slot] = handle
        self.prefixes[slot] = prefix
        for member, (number, tail) in enumerate(zip(handle.rows, tails, strict=True)):
            self.rows[number] = Row(slot, (*keys, member), tail)
        return handle

    def _check_sizes(self, prefix: list[int], tails: list[list[int]]) -> None:
        if len(tails) > len(self.rows):
            raise ValueError(f"the group has {len(tails)} members; this sampler has {len(self.rows)} rows (num_rows)")
        if len(prefix) > self.max_prefix_tokens:
            raise ValueError(
                f"the prompts' shared prefix has {len(prefix)} tokens; max_prefix_tokens is {self.max_prefix_tokens}: "
                "reject such prompts beforehand, or make the sampler with a larger limit"
            )
        for member, tail in enumerate(tails):
            if len(tail) >= self.max_member_tokens:
                raise ValueError(
                    f"member {member} has {len(tail)} prompt tokens of its own (after {len(prefix)} shared ones), "
                    f"which leaves no room to sample; max_member_tokens is {self.max_member_tokens}: reject such "
                    "prompts beforehand, or make the sampler with a larger limit"
                )

    def close(self, handle: GroupHandle) -> None:
        """Free a group's slot and rows. Raises RuntimeError if it is not open."""
        if self._groups.get(handle.slot) != handle:
            raise RuntimeError(f"{handle} is not open; a group can be closed once")
        del self._groups[handle.slot]
        for number in handle.rows:
            self.rows[number] = None

    def idle(self, number: int) -> Row:
        """The row, which must be open and have no turn in progress. Raises RuntimeError otherwise."""
        row = self.opened(number)
        if row.turn is not None:
            raise RuntimeError(f"row {number} is busy with a turn; wait until step returns it")
        return row

    def opened(self, number: int) -> Row:
        """The row, which must be open. Raises RuntimeError otherwise."""
        row = self.rows[number] if 0 <= number < len(self.rows) else None
        if row is None:
            raise RuntimeError(f"row {number} belongs to no open group; use the rows of a handle before it is closed")
        return row
