"""A turn in progress, and how it ends."""

from collections.abc import Sequence
from typing import NamedTuple

from rlagents.sampling.stops import DecodeText, StopStrings, first_stop
from rlagents.sampling.turns import StopReason


class Ending(NamedTuple):
    """How a turn ended: how many of its tokens it keeps, why, and its text up to the stop."""

    kept: int
    reason: StopReason
    text: str


class Progress:
    """Collects one turn's tokens block by block.

    Args:
      limit: how many tokens it may have.
      at_limit: why it ends there, LENGTH or BUDGET.
      decode_text: token ids to text.
      stop_strings: texts that end it.
    """

    def __init__(self, limit: int, at_limit: StopReason, decode_text: DecodeText, stop_strings: Sequence[str]):
        self.limit = limit
        self.token_ids: list[int] = []
        self.log_probs: list[float] = []
        self._at_limit = at_limit
        self._decode_text = decode_text
        self._stop_strings = stop_strings
        self._watch = StopStrings(decode_text, stop_strings)

    @property
    def remaining(self) -> int:
        """How many more tokens it may have."""
        return self.limit - len(self.token_ids)

    def add(self, token_ids: Sequence[int], log_probs: Sequence[float]) -> None:
        """Take over what a block sampled."""
        self.token_ids += token_ids
        self.log_probs += log_probs

    def ending(self, at_stop_token: bool) -> Ending | None:
        """How the turn ended, None if it goes on; to be asked once a block.

        A stop string ends it at the token that completes it, wherever in the block that is. A stop token that is also
        the one to complete a stop string counts as a stop token.
        """
        length = len(self.token_ids)
        kept = self._watch.length(self.token_ids)
        if kept is not None and not (at_stop_token and kept == length):
            text = self._decode_text(self.token_ids[:kept])
            return Ending(kept, StopReason.STOP_STRING, text[: first_stop(text, self._stop_strings)])
        if at_stop_token:
            return Ending(length, StopReason.STOP_TOKEN, self._decode_text(self.token_ids[:-1]))
        if not self.remaining:
            return Ending(length, self._at_limit, self._decode_text(self.token_ids))
        return None
