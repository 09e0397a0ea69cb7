"""The sampler's sizes, and which shapes follow from them."""

import dataclasses

from rlagents.argument_checks import check_whole
from rlagents.sampling.state import Window


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Every shape the sampler compiles for follows from these."""

    num_groups: int
    num_rows: int
    decode_rows: int
    extend_rows: int
    prefill_groups: int
    max_prefix_tokens: int
    max_member_tokens: int
    extend_chunk_tokens: int
    block_steps: int

    def __post_init__(self):
        for name, size in dataclasses.asdict(self).items():
            check_whole(name, size, lowest=0 if name == "max_prefix_tokens" else 1)
        for name, whole in (("decode_rows", "num_rows"), ("extend_rows", "num_rows"), ("prefill_groups", "num_groups")):
            part, most = getattr(self, name), getattr(self, whole)
            if part > most:
                raise ValueError(f"{name}={part} is more than {whole}={most}; give at most {most}.")

    def prefill_tokens(self, length: int) -> int:
        """Shape that a prefix of ``length`` tokens is computed at."""
        return _halved(self.max_prefix_tokens, length, lowest=64)

    def window(self, prefix_tokens: int, own_tokens: int) -> Window:
        """What a call reads where these are the longest prefix and the longest row: all or half of the prefixes; one,
        two, three or four quarters of the rows. Each window compiles anew, and little is gained below 64 tokens: as
        many are always read."""
        prefix, own = max(self.max_prefix_tokens, 1), self.max_member_tokens
        quarter, enough = -(-own // 4), max(own_tokens, min(64, own))
        return Window(
            _halved(prefix, prefix_tokens, lowest=max(64, -(-prefix // 2))),
            min(own, quarter * -(-enough // quarter)),
        )


def sizes_of(*, num_rows: int, extend_rows: int | None, **others: int) -> Sizes:
    """Sizes as they are asked of a sampler: None for ``extend_rows`` is up to 16. Raises ValueError as ``Sizes``."""
    check_whole("num_rows", num_rows, 1)
    fed = min(num_rows, 16) if extend_rows is None else extend_rows
    return Sizes(num_rows=num_rows, extend_rows=fed, **others)


def _halved(size: int, enough: int, lowest: int) -> int:
    """``size`` halved, rounding up, as often as it stays at least ``enough`` and ``lowest``."""
    while size > 1 and (half := -(-size // 2)) >= max(enough, lowest):
        size = half
    return size
