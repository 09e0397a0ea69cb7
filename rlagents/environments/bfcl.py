"""The BFCL multi-turn benchmark as an environment: a user with several requests, stateful tools, a verdict at the end.

A user turn lasts until the model answers without a call (or calls the tool that ends it, see ``bfcl_turns``); then the
user says the next thing, or the episode is over. In a turn that reveals withheld tools the user's message is their
description. As the benchmark has it, the step after the 20th that makes calls within one user turn is carried out and
ends the episode as a failure.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlagents.environments.bfcl_actions import ActionRule, each_exists
from rlagents.environments.bfcl_backends import Execution, official_tools
from rlagents.environments.bfcl_failures import cause_facts, cause_of
from rlagents.environments.bfcl_scoring import (
    EpisodeRecord,
    TurnRecord,
    fingerprint,
    official_verdict,
    replay_truth,
    state_equals,
)
from rlagents.environments.bfcl_tasks import Scenario, scenario_of
from rlagents.environments.bfcl_turns import SeparateTurns, Turns
from rlagents.facts import Message, Observation, Opening, Outcome, Task, Transcript, TurnFacts
from rlagents.tools.call_formats import CallFormat, PythonCalls
from rlagents.tools.descriptions import Tool
from rlagents.tools.function_calls import ParsedCall, RefusedCall

Calls = Sequence[ParsedCall | RefusedCall]

REVEAL = "More tools are at your disposal from now on; use them for what is still open:"


def official_result(call: ParsedCall | RefusedCall, execution: Execution) -> str:
    """Show a result as the benchmark writes it."""
    return execution.text


@dataclass(frozen=True)
class BfclEnvironment:
    """Multi-turn tool use over the BFCL back-ends, for official and generated tasks alike. Picklable.

    Attributes:
      format: how tools are shown and calls are written.
      tools: back-end classes -> the tools that can be called, as the manual shows them.
      show: (call, its execution) -> the content of the message that answers it.
      max_steps: steps with calls allowed within one user turn.
      max_turns: assistant turns in a whole trajectory; the official limit is never below 8 user turns of 21 steps.
      max_output_characters: longer results are cut, and say so.
      closing: what the expert says when a user turn is done.
      turns: how the user asks; ``bfcl_turns`` has the benchmark's way, and all requests in one message.
      action_rule: R_action; ``bfcl_actions`` has two readings of the paper's.
      stop_strings: none are needed: a turn ends with the model's own end token.
    """

    format: CallFormat = field(default_factory=PythonCalls)
    tools: Callable[[tuple[str, ...]], Sequence[Tool]] = official_tools
    show: Callable[[ParsedCall | RefusedCall, Execution], str] = official_result
    max_steps: int = 20
    max_turns: int = 176
    max_output_characters: int = 40_000
    closing: str = "Done."
    turns: Turns = field(default_factory=SeparateTurns)
    action_rule: ActionRule = each_exists
    stop_strings: tuple[str, ...] = ()

    def opening(self, task: Task) -> Opening:
        """A system message with the manual (less the withheld tools) and the user's first message."""
        scenario = scenario_of(task)
        withheld = {name for names in scenario.revealed.values() for name in names}
        shown = [tool for tool in self.callable_tools(scenario).values() if tool.name not in withheld]
        system = {"role": "system", "content": self.format.manual(shown)}
        return Opening([system, self.user_message(self.asked(task), 0)])

    def asked(self, task: Task) -> Scenario:
        """The scenario of a task as the user puts it."""
        scenario = scenario_of(task)
        return self.turns.asked(scenario, lambda turn: self.user_message(scenario, turn)["content"])

    def callable_tools(self, scenario: Scenario) -> dict[str, Tool]:
        """All tools that can be called, by name, with the one that ends a user turn, if there is one."""
        tools = {tool.name: tool for tool in self.tools(scenario.classes)}
        closing = self.turns.closing_tool
        return tools if closing is None else {**tools, closing.name: closing}

    def user_message(self, scenario: Scenario, turn: int) -> Message:
        """What the user says in a turn, with the tools it reveals."""
        text = scenario.user_turns[turn]
        names = scenario.revealed.get(turn, ())
        if names:
            by_name = {tool.name: tool for tool in self.tools(scenario.classes)}
            revealed = self.format.describe([by_name[name] for name in names])
            text = f"{text}\n{REVEAL}\n{revealed}".strip()
        return {"role": "user", "content": text}

    def start(self, task: Task) -> "BfclEpisode":
        """A fresh set of back-ends."""
        return BfclEpisode(self, self.asked(task))

    def score(self, task: Task, transcripts: Sequence[Transcript]) -> list[Outcome]:
        """R (see ``bfcl_scoring``) per member; named: state, action, finished, official, calls, failed_calls,
        disagrees (1 where R and the benchmark's own verdict differ), failed/<cause> (see ``bfcl_failures``)."""
        scenario = self.asked(task)
        return [self._outcome(scenario, transcript) for transcript in transcripts]

    def _outcome(self, scenario: Scenario, transcript: Transcript) -> Outcome:
        record = transcript.record
        if not isinstance(record, EpisodeRecord):
            record = EpisodeRecord((), False, False, 0, 0)
        calls = [call for turn in record.turns for call in turn.calls]
        named = {
            "state": float(record.state_matches),
            "action": float(self.action_rule(calls, scenario.truth)),
            "finished": float(record.finished),
            "official": float(official_verdict(record, scenario)),
            "calls": float(record.num_calls),
            "failed_calls": float(record.num_failed_calls),
        }
        reward = named["state"] * named["action"] * named["finished"]
        causes = cause_facts(cause_of(record, scenario.truth, self.action_rule))
        return Outcome(reward, named=named | {"disagrees": float(reward != named["official"])} | causes)

    def expert(self, task: Task) -> list[list[str]]:
        """Assistant texts that solve the task, user turn by user turn: one call per text, then the closing words.

        A turn of more than ``max_steps`` calls is written in ``max_steps`` texts of several calls each.
        """
        tool = self.turns.closing_tool
        closing = self.closing if tool is None else self.format.render([ParsedCall(tool.name)])
        turns = []
        for truth in self.asked(task).truth:
            size = max(1, -(-len(truth) // self.max_steps))
            texts = [self.format.render(truth[at : at + size]) for at in range(0, len(truth), size)]
            turns.append([*texts, closing])
        return turns


class BfclEpisode:
    """One trajectory: its own back-ends, the user's turn it is in, and what was done so far."""

    def __init__(self, environment: BfclEnvironment, scenario: Scenario):
        self._environment = environment
        self._scenario = scenario
        self._truth = replay_truth(scenario)
        self._world = self._truth.start.copy()
        self._tools = environment.callable_tools(scenario)
        self._turns: list[TurnRecord] = []
        self._calls: list[ParsedCall] = []
        self._refused: list[tuple[int, str]] = []
        self._steps = 0
        self._results: Counter[str] = Counter()
        self._num_calls = 0
        self._num_failed_calls = 0
        self._over = False
        self._finished = False

    def step(self, text: str) -> Observation:
        """Answer one assistant turn: a ``tool`` message per call, or the user's next message, or the end.

        Raises ``RuntimeError`` if the episode is over.
        """
        if self._over:
            raise RuntimeError("the episode is over; start another one for a new trajectory.")
        parsed = self._environment.format.parse(text, self._tools)
        calls, closed = self._until_closed(parsed.calls)
        facts = TurnFacts(void=not closed and (bool(parsed.error) or not text.strip()))
        if calls:
            executed = self._execute(calls)
            if executed.done or not closed:
                return executed
            facts = executed.turn
        return Observation(self._end_turn(garbled=facts.void), self._over, facts)

    def _until_closed(self, calls: Calls) -> tuple[Calls, bool]:
        """Calls before the one that ends the user turn, and whether there is one; what follows is not carried out."""
        closing = self._environment.turns.closing_tool
        for place, call in enumerate(calls):
            if closing is not None and isinstance(call, ParsedCall) and call.name == closing.name:
                return calls[:place], True
        return calls, False

    def _end_turn(self, *, garbled: bool) -> list[Message]:
        """What the user says next; nothing where that was all."""
        self._close_turn(garbled)
        turn = len(self._turns)
        self._over = self._finished = turn == len(self._scenario.user_turns)
        return [] if self._over else [self._environment.user_message(self._scenario, turn)]

    def _execute(self, calls: Calls) -> Observation:
        messages = []
        successes = 0
        for call in calls:
            execution = self._world.execute(call)
            self._results[fingerprint(execution.text)] += 1
            successes += not execution.failed
            if isinstance(call, ParsedCall):
                self._calls.append(call)
            else:
                self._refused.append((len(self._calls), call.name))
            content = self._cut(self._environment.show(call, execution))
            messages.append({"role": "tool", "name": call.name, "content": content})
        self._num_calls += len(calls)
        self._num_failed_calls += len(calls) - successes
        self._steps += 1
        self._over = self._steps > self._environment.max_steps
        if self._over:
            self._close_turn()
        return Observation(messages, self._over, TurnFacts(tool_calls=len(calls), tool_successes=successes))

    def _cut(self, text: str) -> str:
        limit = self._environment.max_output_characters
        if len(text) > limit:
            text = f"{text[:limit]}... [{len(text) - limit} more characters]"
        # What a tool returns may not be encodable, and every message must be.
        return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")

    def _close_turn(self, garbled: bool = False) -> None:
        turn = len(self._turns)
        self._turns.append(
            TurnRecord(
                calls=tuple(self._calls),
                steps=self._steps,
                state_matches=state_equals(self._world, self._truth.states[turn]),
                results_match=self._truth.results[turn] <= self._results,
                refused=tuple(self._refused),
                garbled=garbled,
            )
        )
        self._calls, self._refused = [], []
        self._steps = 0

    def finish(self) -> EpisodeRecord:
        """What the trajectory came to so far; an episode that did not reach its end is not ``finished``."""
        if self._calls or self._steps:
            self._close_turn()
        self._over = True
        return EpisodeRecord(
            turns=tuple(self._turns),
            finished=self._finished,
            state_matches=state_equals(self._world, self._truth.states[-1]),
            num_calls=self._num_calls,
            num_failed_calls=self._num_failed_calls,
        )
