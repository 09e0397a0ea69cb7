"""Scripted failures: what an expert would say, with one thing wrong, each replayed and found to earn nothing.

The paper collects its failures from a policy's rollouts; these stand in for them where no policy is at hand, with the
same three causes: a wrong tool, wrong arguments, an end that comes too early.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlagents.data.streams import TaskSet
from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_tasks import Scenario
from rlagents.environments.procedural.words import VALUES
from rlagents.facts import Task, Transcript
from rlagents.rollouts.conditions import HIGH, LOW
from rlagents.rollouts.experts import Demonstration, Demonstrator, complete
from rlagents.tools.function_calls import ParsedCall

_FAILING = "demonstrated_failing"
_MOST_ATTEMPTS = 50
_WORDS = sorted(VALUES)

Cause = Callable[[Sequence[ParsedCall], Scenario, BfclEnvironment, random.Random], Sequence[ParsedCall] | None]
"""Calls of a user turn -> the calls made instead, after which the turn is ended; None where this cannot be done."""


def wrong_tool(
    calls: Sequence[ParsedCall], scenario: Scenario, environment: BfclEnvironment, source: random.Random
) -> Sequence[ParsedCall] | None:
    """One call goes to another tool of the manual, with the values that the right one was to have."""
    place = source.randrange(len(calls))
    values = list(calls[place].arguments.values()) or [
        value for turn in scenario.truth for call in turn for value in call.arguments.values()
    ]
    others = [tool for name, tool in environment.callable_tools(scenario).items() if name != calls[place].name]
    others = [tool for tool in others if values or not tool.parameters]
    if not others:
        return None
    tool = source.choice(others)
    arguments = {parameter.name: values[n % len(values)] for n, parameter in enumerate(tool.parameters)}
    return [*calls[:place], ParsedCall(tool.name, arguments)]


def wrong_arguments(
    calls: Sequence[ParsedCall], scenario: Scenario, environment: BfclEnvironment, source: random.Random
) -> Sequence[ParsedCall] | None:
    """One argument of one call has another value of its kind."""
    del scenario, environment
    places = [(place, name) for place, call in enumerate(calls) for name in call.arguments]
    if not places:
        return None
    place, name = source.choice(places)
    changed = {**calls[place].arguments, name: _another(calls[place].arguments[name], source)}
    return [*calls[:place], ParsedCall(calls[place].name, changed)]


def premature_end(
    calls: Sequence[ParsedCall], scenario: Scenario, environment: BfclEnvironment, source: random.Random
) -> Sequence[ParsedCall] | None:
    """The turn is ended while some of its calls are still to be made."""
    del scenario, environment
    return calls[: source.randrange(len(calls))]


CAUSES: tuple[Cause, ...] = (wrong_tool, wrong_arguments, premature_end)


def failing(environment: BfclEnvironment, causes: Sequence[Cause] = CAUSES) -> Demonstrator:
    """Return a demonstrator who does one thing wrong, in one user turn, and is not aware of it.

    User turns before that one are the expert's; in it, the calls up to the wrong one are, and then it is ended. There
    the demonstration breaks off: what an expert would do later may build on the call that was not made. Cause, turn and
    what is wrong follow from the task's id. Each failure is replayed with all later turns of the expert: it earns 0
    for what is wrong in it, not for breaking off.

    Raises ValueError for no causes and, when it demonstrates, for a task in which nothing that was tried earns 0.
    """
    if not causes:
        raise ValueError("there are no causes of failure; give at least one of CAUSES.")

    def demonstrate(task: Task, step: int) -> Demonstration:
        source = random.Random(f"failing-{task.id}")
        scenario, expert = environment.asked(task), environment.expert(task)
        turns = [number for number, calls in enumerate(scenario.truth) if calls]
        for _ in range(_MOST_ATTEMPTS if turns else 0):
            number = source.choice(turns)
            calls = source.choice(causes)(scenario.truth[number], scenario, environment, source)
            if calls is None:
                continue
            said = [*_flat(expert[:number]), *(environment.format.render([call]) for call in calls), expert[number][-1]]
            if reward(environment, task, [*said, *_flat(expert[number + 1 :])]) == 0:
                return Demonstration(said, ends=number == len(expert) - 1)
        raise ValueError(
            f"task {task.id!r}: none of {_MOST_ATTEMPTS} corruptions of its expert's {len(turns)} turns with calls "
            "earns 0; give a task in which something can go wrong."
        )

    return demonstrate


def reward(environment: BfclEnvironment, task: Task, texts: Iterable[str]) -> float:
    """Return what assistant texts earn in a task, played in this process until the episode is over or they end."""
    episode, facts, done = environment.start(task), [], False
    for text in texts:
        observation = episode.step(text)
        facts.append(observation.turn)
        if done := observation.done:
            break
    (outcome,) = environment.score(task, [Transcript([], facts, truncated=not done, record=episode.finish())])
    return outcome.reward


@dataclass(frozen=True)
class WithFailures:
    """Each task twice, side by side: to be solved, and to be failed in. What RCTP learns from, 1:1.

    Attributes:
      tasks: those of the experts; this set has twice as many.
    """

    tasks: TaskSet[Task]

    def __getitem__(self, index: int) -> Task:
        """Task ``index // 2``; of an odd index, as one that :func:`both` fails in."""
        task = self.tasks[index // 2]
        return replace(task, payload={**task.payload, _FAILING: True}) if index % 2 else task


def both(environment: BfclEnvironment, fails: Demonstrator) -> Demonstrator:
    """Return a demonstrator for :class:`WithFailures`: the expert under HIGH, ``fails`` under LOW."""
    solves = complete(environment.expert)

    def demonstrate(task: Task, step: int) -> Demonstration:
        if _FAILING in task.payload:
            return fails(task, step)._replace(condition=LOW)
        return solves(task, step)._replace(condition=HIGH)

    return demonstrate


def _another(value: Any, source: random.Random) -> Any:
    """Another value of the same kind: the neighbour of a number, another word, a list or dict with one of its values
    changed."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + source.choice((-2, -1, 1, 2))
    if isinstance(value, Mapping) and value:
        key = source.choice(sorted(value))
        return {**value, key: _another(value[key], source)}
    if isinstance(value, (list, tuple)) and value:
        place = source.randrange(len(value))
        return [*value[:place], _another(value[place], source), *value[place + 1 :]]
    return source.choice([word for word in _WORDS if word != value])


def _flat(turns: Iterable[Sequence[str]]) -> list[str]:
    return [text for texts in turns for text in texts]
