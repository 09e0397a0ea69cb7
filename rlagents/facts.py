"""What environments return: plain Python, no jax, so that tool workers never load it.

An environment speaks of one trajectory turn by turn (:class:`TurnFacts`) and of a whole group at its end
(:class:`Outcome`, one a member). ``rollouts.collate`` turns these into the arrays of ``rlagents.types``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class TransientToolError(Exception):
    """An environment raises it where a remote tool is away for the moment: the call is made again, later.

    It says nothing about the policy. What raises it leaves the episode as it was, since the same call follows. Where
    the tool stays away, the trajectory is lost: marked invalid and counted, never scored.
    """


Message = dict[str, Any]
"""A chat message: ``{"role": ..., "content": str}``, roles system, user, assistant or tool."""


@dataclass(frozen=True)
class Task:
    """One problem. ``id`` is unique within its task set; ``payload`` is picklable and belongs to the environment."""

    id: str
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Opening:
    """How a conversation starts: messages up to (and without) the first assistant turn, and tool schemas if any.

    ``tools`` goes to the chat template; an environment that writes its manual into the system message leaves it None.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class TurnFacts:
    """Facts of one model turn, observed when its text was executed."""

    score: float = 0.0
    tool_calls: int = 0
    tool_successes: int = 0
    void: bool = False
    """True if the turn had neither a tool call nor a final answer."""


@dataclass(frozen=True)
class Observation:
    """What the world answers to one assistant turn: messages to append, whether the episode is over, and its facts."""

    messages: Sequence[Message]
    done: bool
    turn: TurnFacts = TurnFacts()


@dataclass(frozen=True)
class Outcome:
    """Score of one whole trajectory. ``named`` are further scalar facts, logged and available to methods."""

    reward: float
    turn_scores: Sequence[float] | None = None
    """Replaces ``TurnFacts.score`` turn by turn where only the whole group decides it (silver documents)."""
    named: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Transcript:
    """A finished trajectory as the environment sees it when it scores the group."""

    messages: Sequence[Message]
    turns: Sequence[TurnFacts]
    truncated: bool
    """True if the token budget or the turn limit ended it."""
    record: Any = None
    """What the trajectory's episode returned from ``finish()`` (final state, calls made): picklable."""
