"""The append-only token buffer: ids and all that is said of them, in one structure.

A token enters once, with who wrote it, which model turn it belongs to and the log-probability it was sampled with, and
is never touched again. Masks made later from strings, lengths or token values are how training code comes to train on
tool output; here there is nothing to make them from.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rlagents.types import Kind


@dataclass
class TokenBuffer:
    """Four lists of one length, grown by the ``append_...`` methods only.

    Attributes:
      ids: token ids.
      kinds: who wrote each token (:class:`rlagents.types.Kind`).
      turns: index of the model turn of MODEL and FORCED tokens; -1 elsewhere.
      log_probs: nats, as the sampler recorded them; 0.0 where a token was not sampled.
    """

    ids: list[int] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    def copy(self) -> "TokenBuffer":
        """A buffer that grows on its own."""
        return TokenBuffer(list(self.ids), list(self.kinds), list(self.turns), list(self.log_probs))

    def append_prompt(self, ids: Sequence[int]) -> None:
        """Opening messages. Raises ``ValueError`` once anything else was appended."""
        if any(kind != Kind.PROMPT for kind in self.kinds):
            raise ValueError("prompt tokens come first; the buffer already holds a turn or an observation.")
        self._append(ids, Kind.PROMPT, -1, [0.0] * len(ids))

    def append_model(self, ids: Sequence[int], log_probs: Sequence[float], turn: int) -> None:
        """Tokens the policy sampled in model turn ``turn``. Raises ``ValueError`` if the lengths differ."""
        if turn < 0:
            raise ValueError(f"a model token needs a turn index >= 0, got {turn}.")
        self._append(ids, Kind.MODEL, turn, log_probs)

    def append_forced(self, ids: Sequence[int], turn: int) -> None:
        """Tokens put into the model's mouth at the start of model turn ``turn``."""
        if turn < 0:
            raise ValueError(f"a forced token needs a turn index >= 0, got {turn}.")
        self._append(ids, Kind.FORCED, turn, [0.0] * len(ids))

    def append_tool(self, ids: Sequence[int]) -> None:
        """Observations and the scaffolding around them."""
        self._append(ids, Kind.TOOL, -1, [0.0] * len(ids))

    def _append(self, ids: Sequence[int], kind: Kind, turn: int, log_probs: Sequence[float]) -> None:
        if len(ids) != len(log_probs):
            raise ValueError(f"{len(ids)} token ids came with {len(log_probs)} log-probs; each token needs its own.")
        self.ids.extend(map(int, ids))
        self.kinds.extend([kind] * len(ids))
        self.turns.extend([turn] * len(ids))
        self.log_probs.extend(map(float, log_probs))
        lengths = {len(self.ids), len(self.kinds), len(self.turns), len(self.log_probs)}
        if len(lengths) != 1:
            raise AssertionError(f"the buffer's lists have come apart: lengths {sorted(lengths)}.")
