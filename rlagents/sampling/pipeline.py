"""Blocks of decoding, one after the other: which rows each decodes, and which are under way while the host works.

With one block in flight the device waits while the host looks for stops, runs tools and makes the next arguments. With
two, the next block is sent before the one under way is read. Its rows are those asked for first, as ever; a row of the
block under way goes on from its end on the device, without the host knowing yet what it sampled. If its turn turns out
to be over, its place stays empty for that block, which is the price: about one block a turn. A stop token empties the
place on the device; after a stop string, or where the group was closed, what is decoded beyond is never read.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rlagents.argument_checks import is_whole
from rlagents.sampling.device import Block, BlockInFlight, Device
from rlagents.sampling.progress import Progress
from rlagents.sampling.rows import Table


class _Flight(NamedTuple):
    block: BlockInFlight
    turns: dict[int, Progress]
    """Whose tokens it samples: a row may have another turn, or be another member's, by the time they are read."""


def check_blocks_in_flight(blocks_in_flight: int) -> None:
    """Raise ValueError unless it is 1 or 2."""
    if not is_whole(blocks_in_flight) or blocks_in_flight not in (1, 2):
        raise ValueError(
            f"blocks_in_flight is {blocks_in_flight!r}; give 2, or 1 to read each block before the next is sent."
        )


class Pipeline:
    """The turns in progress and the blocks in flight.

    Args:
      device: decodes.
      table: rows.
      blocks_in_flight: 1 reads each block before the next is sent, 2 reads it after.
    """

    def __init__(self, device: Device, table: Table, blocks_in_flight: int):
        self._device, self._table, self._limit = device, table, blocks_in_flight
        self._turns: dict[int, Progress] = {}  # in the order of their requests
        self._flights: deque[_Flight] = deque()

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[tuple[int, Progress]]:
        """Rows and their turns, in the order they were asked for."""
        return iter(list(self._turns.items()))

    def add(self, number: int, turn: Progress) -> None:
        """A turn begins."""
        self._turns[number] = turn

    def remove(self, numbers: Iterable[int]) -> None:
        """Turns that are over, or dropped; of rows without one nothing is known here."""
        for number in numbers:
            self._turns.pop(number, None)

    def next_block(self) -> dict[int, Block]:
        """Send blocks, then wait for the oldest: what the rows sampled whose turn is still in progress."""
        self._flights = deque(flight for flight in self._flights if any(self._live(flight)))
        while len(self._flights) < self._limit and self._send():
            pass
        if not self._flights:
            return {}
        flight = self._flights.popleft()
        blocks = flight.block.read()
        return {number: blocks[number] for number in self._live(flight)}

    def _live(self, flight: _Flight) -> list[int]:
        return [number for number, turn in flight.turns.items() if self._turns.get(number) is turn]

    def _send(self) -> bool:
        """Whether there was anything to decode."""
        before = self._flights[-1] if self._flights else None
        turns, carried = {}, set()
        for number, turn in self._turns.items():
            if before is not None and before.turns.get(number) is turn:
                if turn.remaining <= self._device.sizes.block_steps:
                    continue  # over at the end of the block under way, whatever it samples
                carried.add(number)
            turns[number] = turn
            if len(turns) == self._device.sizes.decode_rows:
                break
        if not turns:
            return False
        remaining = {number: turn.remaining for number, turn in turns.items()}
        block = self._device.decode(self._table, remaining, None if before is None else before.block, carried)
        self._flights.append(_Flight(block, turns))
        return True
