"""Stop strings, found on the host in decoded text.

The rule: a turn ends with its first token ``k`` such that ``decode_text(tokens[:k])`` holds a stop string. It does not
depend on where blocks of decoding end. :class:`StopStrings` keeps the cost linear: a search in the newest text alone
says whether to look for ``k`` at all.
"""

from collections.abc import Callable, Sequence

DecodeText = Callable[[Sequence[int]], str]

_UNFINISHED = "�"
"""What decoders write for the bytes of a character that is not complete yet."""


def first_stop(text: str, stop_strings: Sequence[str]) -> int | None:
    """Where the earliest stop string begins in ``text``; None if there is none."""
    return min((at for at in map(text.find, stop_strings) if at >= 0), default=None)


class StopStrings:
    """Watches one turn as it grows."""

    def __init__(self, decode_text: DecodeText, stop_strings: Sequence[str]):
        self._decode_text = decode_text
        self._stop_strings = tuple(stop_strings)
        self._overlap = max(map(len, self._stop_strings), default=1) - 1
        self._searched = 0
        # tokens[:settled] are text that will not change. Decoding starts earlier, at the point settled before it, so
        # that what a decoder does to its first token (dropping a leading space, say) cancels in the difference.
        self._context = 0
        self._settled = 0
        self._tail = ""

    def length(self, token_ids: Sequence[int]) -> int | None:
        """Number of tokens the turn keeps if ``token_ids``, the turn so far, holds a stop string; None otherwise.

        Each call must extend the list of the call before.
        """
        if not self._stop_strings:
            return None
        start, self._searched = self._searched, len(token_ids)
        if self._first(self._newest(token_ids)) is None:
            return None
        for kept in range(start + 1, len(token_ids) + 1):
            if self._first(self._decode_text(token_ids[:kept])) is not None:
                return kept
        return None

    def _first(self, text: str) -> int | None:
        return first_stop(text, self._stop_strings)

    def _newest(self, token_ids: Sequence[int]) -> str:
        """Text not searched before, after as much old text as a stop string may begin in."""
        old = self._decode_text(token_ids[self._context : self._settled])
        text = self._tail + self._decode_text(token_ids[self._context :])[len(old) :]
        if not text.endswith(_UNFINISHED):
            self._tail = text[max(0, len(text) - self._overlap) :]
            self._context, self._settled = self._settled, len(token_ids)
        return text
