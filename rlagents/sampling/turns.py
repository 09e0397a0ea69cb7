"""What the sampler hands back: a model turn, and why it ended."""

import dataclasses
import enum


class StopReason(enum.Enum):
    """Why a turn ended. Carried from the sampler: never guess it from the last token."""

    STOP_TOKEN = "stop_token"
    """One of ``stop_token_ids`` was sampled; it is the turn's last token."""
    STOP_STRING = "stop_string"
    """The text came to hold one of ``stop_strings``; the token that completed it is the turn's last token."""
    LENGTH = "length"
    """``max_new_tokens`` of the request were sampled; the member may go on."""
    BUDGET = "budget"
    """The member holds ``max_member_tokens`` tokens; nothing more can be appended or sampled."""


@dataclasses.dataclass(frozen=True)
class Turn:
    """One model turn of one row.

    Attributes:
      row: the row it belongs to.
      token_ids: sampled tokens, the stopping one included (it is trained). Empty only where the member had no room
        left when the turn was asked for (``StopReason.BUDGET``).
      log_probs: of each token, float32 nats, full vocabulary at the sampling temperature.
      stop_reason: why it ended.
      text: decoded text up to the stop: without the stop token, or up to where the stop string begins.
      weight_version: of the weights that sampled every token of it.
    """

    row: int
    token_ids: list[int]
    log_probs: list[float]
    stop_reason: StopReason
    text: str
    weight_version: int
