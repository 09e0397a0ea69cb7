"""How the requests of a BFCL scenario reach the model: one user turn after the other, or all in one message.

The benchmark has a user who speaks again when the model answers without a call. RC-GRPO (arXiv 2602.03025, appendix
B.1.1) merges what the user says into one list of steps, to be worked through with a call of ``done()`` at the end; its
example shows both ways.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rlagents.environments.bfcl_tasks import Scenario
from rlagents.tools.descriptions import Tool

DONE = Tool("done", (), "Says that every step is complete.")
ALL_STEPS = "Complete all steps in order with the tools, then call done()."


class Turns(Protocol):
    """A way of asking. Picklable."""

    @property
    def closing_tool(self) -> Tool | None:
        """The tool whose call ends a user turn, beside an answer without a call; None for none."""
        ...

    def asked(self, scenario: Scenario, says: Callable[[int], str]) -> Scenario:
        """The scenario as it is asked; ``says(turn)`` is the user's message, with the tools that the turn reveals."""
        ...


@dataclass(frozen=True)
class SeparateTurns:
    """As the benchmark has it: a message when its turn has come."""

    @property
    def closing_tool(self) -> Tool | None:
        """None: an answer without a call ends a user turn."""
        return None

    def asked(self, scenario: Scenario, says: Callable[[int], str]) -> Scenario:
        """The scenario as it is."""
        return scenario


@dataclass(frozen=True)
class MergedTurns:
    """All that the user says as one message: ``Step 1: ...``, a line or more each, and how to end.

    Tools that a turn reveals are described in its step, and can be called from the beginning. The whole is one user
    turn: R compares the state after it with that after the last turn of the truth, and so does the benchmark's verdict,
    which has no turns in between to look at.

    Attributes:
      instruction: the last line.
      closing_tool: called when all is done; an answer without a call ends the episode too.
    """

    instruction: str = ALL_STEPS
    closing_tool: Tool | None = DONE

    def asked(self, scenario: Scenario, says: Callable[[int], str]) -> Scenario:
        """A scenario of one turn, whose truth is that of all turns in order."""
        steps = [f"Step {turn + 1}: {says(turn)}" for turn in range(len(scenario.user_turns))]
        return Scenario(
            classes=scenario.classes,
            initial_config=scenario.initial_config,
            user_turns=("\n".join([*steps, self.instruction]),),
            truth=(tuple(call for turn in scenario.truth for call in turn),),
            long_context=scenario.long_context,
        )
