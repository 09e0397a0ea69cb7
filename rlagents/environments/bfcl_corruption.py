"""Failures made from the truth, where no policy is at hand to fail by itself: the mistakes that RC-GRPO names.

    wrong tool       one call is made with another tool that the task does not ask for
    wrong arguments  one argument of one call has another value, or is left out
    premature end    the calls of one user turn end early; what the user says next is answered as the expert does

A corruption counts only if the environment, played through, gives it reward 0 and names the cause that was meant:
another is tried otherwise. Mistakes of RC-GRPO (arXiv 2602.03025, appendix B.1.1); to write them by rote is ours.
"""

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_failures import PREMATURE_END, WRONG_ARGUMENTS, WRONG_TOOL, cause_in
from rlagents.environments.bfcl_tasks import Scenario
from rlagents.environments.replay import play
from rlagents.facts import Task
from rlagents.tools.descriptions import Parameter, Tool
from rlagents.tools.function_calls import ParsedCall

_ATTEMPTS = 40
"""Of each kind: a task of one call leaves few ways of getting it wrong."""

_PLAIN_VALUES: Mapping[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}


class Corrupted(NamedTuple):
    """A failure in one task."""

    texts: tuple[str, ...]
    """What the assistant says, in order; the episode is over after the last one."""
    cause: str
    """Of its reward of 0."""


def corrupted(environment: BfclEnvironment, task: Task, *, seed: int = 0) -> Corrupted:
    """Spoil the expert's calls in one place. The kind of mistake is drawn first, all three alike.

    The same seed, task and environment give the same texts in every process. Raises ValueError where no corruption
    that was tried fails as it should, such as in a task that asks for no calls.
    """
    scenario, source = environment.asked(task), random.Random(f"corrupted-{seed}-{task.id}")
    kinds: Mapping[str, Callable[[_Spoiler], Scenario | None]] = {
        WRONG_TOOL: _Spoiler.with_wrong_tool,
        WRONG_ARGUMENTS: _Spoiler.with_wrong_arguments,
        PREMATURE_END: _Spoiler.ended_early,
    }
    spoiler = _Spoiler(scenario, environment.callable_tools(scenario), environment.turns.closing_tool, source)
    for cause in source.sample(list(kinds), len(kinds)):
        for _ in range(_ATTEMPTS):
            spoiled = kinds[cause](spoiler)
            if spoiled is None:
                break
            turns = environment.expert(Task(task.id, {"scenario": spoiled}))
            texts = tuple(text for turn in turns for text in turn)
            played = play(environment, task, texts)
            if played.outcome.reward == 0.0 and played.ends and cause_in(played.outcome) == cause:
                return Corrupted(texts, cause)
    raise ValueError(
        f"task {task.id!r}: {_ATTEMPTS} tries of each kind gave no failure with the cause that was meant; leave the "
        "task out, or take failures of a policy."
    )


class _Spoiler:
    """One scenario and all that a mistake in it can be made of."""

    def __init__(self, scenario: Scenario, tools: Mapping[str, Tool], closing: Tool | None, source: random.Random):
        self._scenario, self._random = scenario, source
        self._places = [(turn, place) for turn, calls in enumerate(scenario.truth) for place in range(len(calls))]
        asked_for = {call.name for calls in scenario.truth for call in calls} | ({closing.name} if closing else set())
        self._other_tools = [tool for name, tool in tools.items() if name not in asked_for]
        given = [value for calls in scenario.truth for call in calls for value in call.arguments.values()]
        # Values of other calls are what a model would mix up; where there are none, names and values of the world.
        self._known = (given, [leaf for config in scenario.initial_config.values() for leaf in _leaves(config)])

    def with_wrong_tool(self) -> Scenario | None:
        if not self._places or not self._other_tools:
            return None
        turn, place = self._random.choice(self._places)
        tool, made = self._random.choice(self._other_tools), self._scenario.truth[turn][place]
        required = [parameter for parameter in tool.parameters if parameter.required]
        arguments = {parameter.name: self._argument(parameter, made) for parameter in required}
        return self._with_call(turn, place, ParsedCall(tool.name, arguments))

    def with_wrong_arguments(self) -> Scenario | None:
        places = [(turn, place) for turn, place in self._places if self._scenario.truth[turn][place].arguments]
        if not places:
            return None
        turn, place = self._random.choice(places)
        made = self._scenario.truth[turn][place]
        arguments = dict(made.arguments)
        name = self._random.choice(list(arguments))
        if self._random.random() < 0.2:
            del arguments[name]
        else:
            arguments[name] = self._another(arguments[name])
        return self._with_call(turn, place, ParsedCall(made.name, arguments))

    def ended_early(self) -> Scenario | None:
        if not self._places:
            return None
        turn, place = self._random.choice(self._places)
        return self._with_calls(turn, self._scenario.truth[turn][:place])

    def _with_call(self, turn: int, place: int, call: ParsedCall) -> Scenario:
        calls = self._scenario.truth[turn]
        return self._with_calls(turn, (*calls[:place], call, *calls[place + 1 :]))

    def _with_calls(self, turn: int, calls: tuple[ParsedCall, ...]) -> Scenario:
        truth = self._scenario.truth
        return dataclasses.replace(self._scenario, truth=(*truth[:turn], calls, *truth[turn + 1 :]))

    def _argument(self, parameter: Parameter, instead_of: ParsedCall) -> Any:
        """What the call had under that name, or else something of that type."""
        if parameter.name in instead_of.arguments:
            return instead_of.arguments[parameter.name]
        kind = str(parameter.schema.get("type"))
        if kind in _PLAIN_VALUES:
            return _PLAIN_VALUES[kind]
        return self._occurring(lambda value: kind != "string" or isinstance(value, str), "")

    def _another(self, value: Any) -> Any:
        """Another value of the same type: one that occurs in the task, if there is one."""
        if isinstance(value, bool):
            return not value
        changed = None
        if isinstance(value, (int, float)):
            changed = value + self._random.choice([-1, 1, 10])
        elif isinstance(value, Sequence) and value:
            changed = value[:-1]
        return self._occurring(lambda other: type(other) is type(value) and other != value, changed)

    def _occurring(self, suits: Callable[[Any], bool], otherwise: Any) -> Any:
        for values in self._known:
            suitable = [value for value in values if suits(value)]
            if suitable:
                return self._random.choice(suitable)
        return otherwise


def _leaves(node: Any) -> Iterator[str | int | float]:
    """Names and values of a nested configuration, in its order."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if isinstance(key, str):
                yield key
            yield from _leaves(value)
    elif isinstance(node, (list, tuple)):
        for value in node:
            yield from _leaves(value)
    elif isinstance(node, (str, int, float)) and not isinstance(node, bool) and len(str(node)) <= 40:
        yield node
