"""What can go wrong in an environment, told apart by who is to blame: no jax, workers import this.

A fault of a *tool* (it raises, hangs, dies, floods, answers with something that is not text) is something the policy
may have caused and can react to: it becomes an observation and is counted. A fault of the *infrastructure* (an episode
that cannot be started, rebuilt or scored, a remote tool that stays away) says nothing about the policy: the trajectory
is :class:`Lost`, marked invalid, counted, and never scored 0.
"""

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlagents.facts import Observation, TurnFacts


class ToolFault(enum.Enum):
    """How a step failed."""

    RAISED = "raised"
    TIMED_OUT = "timed_out"
    DIED = "died"
    FLOODED = "flooded"
    OUT_OF_MEMORY = "out_of_memory"
    """Its process and what it started held more memory than a worker may."""
    MALFORMED = "malformed"
    """Not an observation, or one whose content is not text or cannot be sent between processes."""


class NothingSampledError(ValueError):
    """Not a single task gave a trajectory: all were skipped, or all lost."""


@dataclass(frozen=True)
class Stepped:
    """Answer to a step. ``fault`` is None if the environment itself answered."""

    observation: Observation
    fault: ToolFault | None = None


@dataclass(frozen=True)
class Lost:
    """Answer to any request that the infrastructure could not carry out."""

    reason: str


@dataclass(frozen=True)
class Again:
    """Answer to a request whose remote tool is away for the moment (:class:`rlagents.facts.TransientToolError`)."""

    reason: str


class Answer(NamedTuple):
    """What a worker sends for every request.

    ``spoiled`` says what the request changed in its process that could not be put back; None for nothing.
    """

    value: Any
    spoiled: str | None


def fault_step(fault: ToolFault, detail: str, role: str) -> Stepped:
    """The observation that stands for a failed step: one message of ``role``, the episode goes on.

    The turn counts as one tool call without success.
    """
    message = {"role": role, "content": f"Error: {detail}"}
    return Stepped(Observation([message], done=False, turn=TurnFacts(tool_calls=1, tool_successes=0)), fault)
