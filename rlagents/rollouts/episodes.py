"""The episodes of one worker: runs environment code and lets nothing but well-formed answers out. Imports no jax."""

import numbers
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlagents.environments.base import Environment, Episode
from rlagents.facts import Observation, Opening, Outcome, Task, Transcript, TransientToolError, TurnFacts
from rlagents.rollouts.faults import Stepped, ToolFault, fault_step

# What environment code may raise without being a bug of ours. SystemExit: a tool that calls sys.exit().
ENVIRONMENT_ERRORS = (Exception, SystemExit)

_LARGEST = 3.4028234663852886e38  # of float32
_MOST = 2**31 - 1  # of int32


@dataclass(frozen=True)
class EpisodeRules:
    """Limits on what an environment answers.

    Attributes:
      max_observation_chars: characters of all messages of one observation; a longer one is a fault, never cut.
      fault_role: role of the message that reports a fault to the policy.
    """

    max_observation_chars: int = 1_000_000
    fault_role: str = "tool"


class Episodes:
    """Holds episodes by number and answers for them.

    ``step`` raises nothing on the environment's account but ``TransientToolError``; the other methods do, and the
    caller makes that :class:`rlagents.rollouts.faults.Lost`, or asks again.
    """

    def __init__(
        self,
        environment: Environment,
        rules: EpisodeRules,
        errors: tuple[type[BaseException], ...] = ENVIRONMENT_ERRORS,
    ):
        self._environment, self._rules, self._errors = environment, rules, errors
        self._living: dict[int, Episode] = {}

    def opening(self, task: Task) -> Opening:
        """The environment's opening for ``task``; raises ``TypeError`` if it is not one, or not of text."""
        opening = self._environment.opening(task)
        if not isinstance(opening, Opening):
            raise TypeError(f"opening() returned {type(opening).__name__}, expected Opening.")
        problem = _malformed_messages(opening.messages)
        if problem is not None:
            raise TypeError(f"opening() returned an Opening that is malformed: {problem}.")
        return opening

    def start(self, episode: int, task: Task) -> None:
        """Begin an episode."""
        self._living[episode] = self._environment.start(task)

    def step(self, episode: int, text: str) -> Stepped:
        """One assistant turn; whatever the environment does wrong becomes an error observation."""
        try:
            observation = self._living[episode].step(text)
        except TransientToolError:
            raise  # the tool is away, and the policy is not to blame
        except self._errors as error:
            return self._fault(ToolFault.RAISED, f"{type(error).__name__}: {error}"[:1000])
        problem = _malformed(observation)
        if problem is not None:
            return self._fault(ToolFault.MALFORMED, f"the environment's answer is malformed: {problem}")
        chars = sum(len(message["content"]) for message in observation.messages)
        if chars > self._rules.max_observation_chars:
            limit = self._rules.max_observation_chars
            return self._fault(ToolFault.FLOODED, f"the tool answered {chars} characters; at most {limit} are allowed")
        return Stepped(observation)

    def rebuild(self, episode: int, task: Task, history: Sequence[tuple[str, Stepped]]) -> None:
        """Bring an episode back by replaying it; raises ``RuntimeError`` if it does not answer as it did."""
        self.start(episode, task)
        for number, (text, recorded) in enumerate(history):
            if not _alike(self.step(episode, text), recorded):
                self.abandon(episode)
                raise RuntimeError(
                    f"replay of task {task.id!r} differs at step {number}: the environment is not deterministic."
                )

    def finish(self, episode: int) -> Any:
        """End an episode; its record."""
        return self._living.pop(episode).finish()

    def abandon(self, episode: int) -> None:
        """Forget an episode."""
        self._living.pop(episode, None)

    def score(self, task: Task, transcripts: Sequence[Transcript]) -> list[Outcome]:
        """Score a group; raises ``TypeError`` or ``ValueError`` if there is not one lawful Outcome a transcript."""
        outcomes = list(self._environment.score(task, transcripts))
        if len(outcomes) != len(transcripts):
            raise ValueError(f"score() returned {len(outcomes)} outcomes for {len(transcripts)} transcripts.")
        for outcome, transcript in zip(outcomes, transcripts, strict=True):
            if not isinstance(outcome, Outcome):
                raise TypeError(f"score() returned {type(outcome).__name__}, expected Outcome.")
            if not _is_number(outcome.reward):
                raise ValueError(f"score() returned the reward {outcome.reward!r}, expected a finite number.")
            if outcome.turn_scores is not None and len(outcome.turn_scores) != len(transcript.turns):
                raise ValueError(f"{len(outcome.turn_scores)} turn scores came for {len(transcript.turns)} turns.")
            for name, value in [*enumerate(outcome.turn_scores or ()), *outcome.named.items()]:
                if not _is_number(value):
                    what = f"turn {name} the score" if isinstance(name, int) else f"the fact {name!r}"
                    raise ValueError(f"score() returned for {what} {value!r}, expected a finite number.")
        return outcomes

    def _fault(self, fault: ToolFault, detail: str) -> Stepped:
        return fault_step(fault, detail, self._rules.fault_role)


def _alike(replayed: Stepped, recorded: Stepped) -> bool:
    # The text of an exception may hold an address; that it was raised again is enough.
    return replayed.fault == recorded.fault == ToolFault.RAISED or replayed == recorded


def _is_number(value: Any) -> bool:
    """Whether it is a number that float32 holds, as batches do."""
    try:
        return isinstance(value, numbers.Real) and abs(float(value)) <= _LARGEST
    except Exception:  # a class of the environment's own
        return False


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value <= _MOST


def _malformed_turn(turn: Any) -> str | None:
    if not isinstance(turn, TurnFacts) or not _is_number(turn.score):
        return f"turn is {turn!r}, not TurnFacts with a finite score"
    if not _is_count(turn.tool_calls) or not _is_count(turn.tool_successes) or not isinstance(turn.void, bool):
        return f"turn is {turn!r}, not TurnFacts with whole numbers of calls and a true or false void"
    return None


def _malformed(observation: Any) -> str | None:
    """What is wrong with what ``step`` returned; None if it can be used."""
    if not isinstance(observation, Observation):
        return f"{type(observation).__name__} instead of an Observation"
    if not isinstance(observation.done, bool):
        return f"done is {observation.done!r}, not true or false"
    problem = _malformed_messages(observation.messages) or _malformed_turn(observation.turn)
    if problem is not None:
        return problem
    try:
        pickle.dumps(observation)
    except Exception as error:
        return f"it cannot be sent between processes ({type(error).__name__}: {error})"
    return None


def _malformed_messages(messages: Any) -> str | None:
    if not isinstance(messages, list | tuple):
        return f"messages is a {type(messages).__name__}, not a list"
    return next(filter(None, map(_malformed_message, messages)), None)


def _malformed_message(message: Any) -> str | None:
    if not isinstance(message, dict):
        return f"a message is a {type(message).__name__}, not a dict"
    for key in ("role", "content"):
        text = message.get(key)
        if not isinstance(text, str):
            return f"a message's {key} is a {type(text).__name__}, not text"
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return f"a message's {key} is not valid Unicode ({error.reason})"
    return None
