"""The text of each token, such that the pieces of a sequence join to exactly its decoded text."""

from collections.abc import Callable, Sequence


class TokenPieces:
    """``pieces(ids)`` for one way of decoding; single tokens are decoded once and remembered.

    A character that several tokens spell (bytes of an emoji) belongs to the last of them, and the others are empty:
    a lone byte is no text.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]):
        self._decode = decode
        self._single: dict[int, str] = {}

    def __call__(self, ids: Sequence[int]) -> list[str]:
        """One text a token; ``"".join(pieces(ids)) == decode(ids)``, whatever the tokenizer does at borders."""
        ids = [int(token) for token in ids]
        return self._pieces(ids, self._decode(ids)) if ids else []

    def _pieces(self, ids: list[int], text: str) -> list[str]:
        if len(ids) == 1:
            return [text]
        singles = [self._of(token) for token in ids]
        if "".join(singles) == text:
            return singles
        for cut in _from_the_middle(len(ids)):
            left, right = self._decode(ids[:cut]), self._decode(ids[cut:])
            if left + right == text:
                return [*self._pieces(ids[:cut], left), *self._pieces(ids[cut:], right)]
        return self._grown(ids, text)

    def _of(self, token: int) -> str:
        if token not in self._single:
            self._single[token] = self._decode([token])
        return self._single[token]

    def _grown(self, ids: list[int], text: str) -> list[str]:
        """Each token has what of ``text`` stands once it is there, and did not before."""
        pieces, told = [], 0
        for end in range(1, len(ids) + 1):
            stands = len(text) if end == len(ids) else max(told, _shared_length(self._decode(ids[:end]), text))
            pieces.append(text[told:stands])
            told = stands
        return pieces


def _shared_length(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(one, other))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _from_the_middle(length: int) -> list[int]:
    """All places to cut ``length`` tokens in two, those near the middle first."""
    return sorted(range(1, length), key=lambda cut: abs(2 * cut - length))
