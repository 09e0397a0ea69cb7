"""Why a trajectory failed: exactly one cause, decided from what it did and from the truth; none where it was solved.

The first of these that holds:

    cut_short        the token budget, the limit of turns or of steps ended it, or its worker died
    wrong_arguments  in the user turn that asks for a*, its tool was called with arguments that no call of the truth has
    wrong_tool       in that turn, another call that no call of the truth has was made where a* was to come
    garbled          in that turn, the assistant wrote something that tried to be a call and was none, or nothing at all
    premature_end    that turn ended without a*, and with nothing in its place
    spoiled_state    every call of the truth was made, but the state at the end is another one

``a*`` is the first call of the truth that R_action misses: the first that makes it 0 when the truth is taken up to it.
"Where a* was to come" is after the call that the truth has before a* in the same turn, or anywhere in the turn if there
is none: what was looked up earlier is not held against it. A call that could not be bound (unknown tool, arguments
beyond the signature) counts by the name it was written with. The paper names wrong tool, wrong parameters and premature
termination (RC-GRPO, arXiv 2602.03025, appendix B.1.1); how it tells them apart is not stated.
"""

from collections.abc import Iterator

from rlagents.environments.bfcl_actions import ActionRule, Truth, call_covers
from rlagents.environments.bfcl_scoring import EpisodeRecord, TurnRecord
from rlagents.facts import Outcome
from rlagents.tools.function_calls import ParsedCall

CUT_SHORT, WRONG_ARGUMENTS, WRONG_TOOL = "cut_short", "wrong_arguments", "wrong_tool"
GARBLED, PREMATURE_END, SPOILED_STATE = "garbled", "premature_end", "spoiled_state"

CAUSES = (CUT_SHORT, WRONG_ARGUMENTS, WRONG_TOOL, GARBLED, PREMATURE_END, SPOILED_STATE)
"""In their order of precedence."""

FAILED = "failed/"
"""Begins the name of the fact that is 1 where a trajectory failed for a cause."""


def cause_of(record: EpisodeRecord, truth: Truth, action_rule: ActionRule) -> str | None:
    """One of ``CAUSES``, or None where ``R_state * R_action * R_finished`` is 1."""
    if not record.finished:
        return CUT_SHORT
    calls = [call for turn in record.turns for call in turn.calls]
    if not action_rule(calls, truth):
        return _why_missing(record, truth, action_rule, calls)
    return None if record.state_matches else SPOILED_STATE


def cause_facts(cause: str | None) -> dict[str, float]:
    """``failed/<cause>``: 1 for the cause, 0 for all others."""
    return {f"{FAILED}{name}": float(name == cause) for name in CAUSES}


def cause_in(outcome: Outcome) -> str | None:
    """The cause that an outcome's facts name; None where they name none."""
    facts = outcome.named.items()
    return next((name.removeprefix(FAILED) for name, value in facts if value and name.startswith(FAILED)), None)


def _why_missing(record: EpisodeRecord, truth: Truth, action_rule: ActionRule, calls: list[ParsedCall]) -> str:
    missing = _first_missing(truth, action_rule, calls)
    if missing is None:
        return PREMATURE_END
    turn, place = missing
    made, wanted = record.turns[turn], truth[turn][place]
    begin = _covered_at(made, truth[turn][place - 1]) if place else 0
    others = [(at, name) for at, name, call in _attempts(made) if call is None or not _asked_for(call, truth)]
    if any(name == wanted.name for _, name in others):
        return WRONG_ARGUMENTS
    if any(at >= begin for at, _ in others):
        return WRONG_TOOL
    return GARBLED if made.garbled else PREMATURE_END


def _first_missing(truth: Truth, action_rule: ActionRule, calls: list[ParsedCall]) -> tuple[int, int] | None:
    """User turn and place in it of a*; None where a rule of another kind refuses the whole, and no part of it."""
    places = ((turn, place) for turn, wanted in enumerate(truth) for place in range(len(wanted)))
    return next(
        ((turn, place) for turn, place in places if not action_rule(calls, [*truth[:turn], truth[turn][: place + 1]])),
        None,
    )


def _covered_at(made: TurnRecord, wanted: ParsedCall) -> int:
    """Calls of the turn up to and with the first that covers ``wanted``; 0 where none does."""
    return next((at + 1 for at, call in enumerate(made.calls) if call_covers(call, wanted)), 0)


def _attempts(made: TurnRecord) -> Iterator[tuple[int, str, ParsedCall | None]]:
    """(calls made before it, name, the call itself if it could be bound) of all that was tried in a turn."""
    yield from ((at, call.name, call) for at, call in enumerate(made.calls))
    yield from ((at, name, None) for at, name in made.refused)


def _asked_for(call: ParsedCall, truth: Truth) -> bool:
    return any(call_covers(call, wanted) for turn in truth for wanted in turn)
