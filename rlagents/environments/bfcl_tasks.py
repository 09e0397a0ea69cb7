"""Tasks over the BFCL back-ends: what the user says turn by turn, and the calls that would satisfy them.

The benchmark has no training split: its four multi-turn categories hold 200 tasks each, and tasks with one number are
variants of one another across categories. Split by :func:`task_number` or the split leaks.
"""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlagents.environments.bfcl_backends import official_tools, package_folder
from rlagents.facts import Task
from rlagents.tools.descriptions import Tool
from rlagents.tools.function_calls import ParsedCall, parse_call_list

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
"""The official multi-turn categories that can be asked for by :func:`official_tasks`."""


@dataclass(frozen=True)
class Scenario:
    """One multi-turn problem, the payload of a task under the key ``"scenario"``. Picklable.

    Attributes:
      classes: the back-ends in play, by class name.
      initial_config: class name -> the state it starts in.
      user_turns: what the user says, turn by turn; "" in a turn that only reveals tools.
      truth: turn -> the calls that satisfy it, in order. A turn may ask for none.
      revealed: turn -> names of tools withheld from the manual until that turn.
      long_context: the benchmark's switch that floods states and results with irrelevant material.
    """

    classes: tuple[str, ...]
    initial_config: Mapping[str, Any]
    user_turns: tuple[str, ...]
    truth: tuple[tuple[ParsedCall, ...], ...]
    revealed: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    long_context: bool = False

    def __post_init__(self):
        if len(self.user_turns) != len(self.truth) or not self.user_turns:
            raise ValueError(
                f"{len(self.user_turns)} user turns with {len(self.truth)} turns of truth; a scenario has one list of "
                "calls (it may be empty) for each of its user turns, and at least one turn."
            )

    @functools.cached_property
    def digest(self) -> str:
        """A name for the content: equal scenarios have equal digests, in every process."""
        content = (self.classes, self.initial_config, self.user_turns, self.truth, self.revealed, self.long_context)
        return hashlib.blake2b(repr(content).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def scenario_of(task: Task) -> Scenario:
    """The scenario of a task. Raises ``TypeError`` for a task that does not belong to this environment."""
    scenario = task.payload.get("scenario")
    if not isinstance(scenario, Scenario):
        raise TypeError(f"task {task.id!r} has no Scenario under 'scenario'; its payload has {sorted(task.payload)}.")
    return scenario


@functools.cache
def official_tasks(category: str) -> tuple[Task, ...]:
    """The 200 tasks of one official multi-turn category, in the benchmark's order, ids as in the benchmark.

    Raises ``ValueError`` for an unknown category and ``ModuleNotFoundError`` where bfcl-eval is not installed.
    """
    if category not in CATEGORIES:
        raise ValueError(f"unknown category {category!r}; the multi-turn categories are {', '.join(CATEGORIES)}.")
    data = package_folder() / "data"
    name = f"BFCL_v4_multi_turn_{category}.json"
    entries = [json.loads(line) for line in (data / name).read_text(encoding="utf-8").splitlines()]
    answers = [json.loads(line) for line in (data / "possible_answer" / name).read_text(encoding="utf-8").splitlines()]
    truths = {answer["id"]: answer["ground_truth"] for answer in answers}
    return tuple(_official_task(entry, truths[entry["id"]], category == "long_context") for entry in entries)


def task_number(task: Task) -> int:
    """The number of an official task; equal numbers are variants of one problem in every category."""
    return int(task.id.rpartition("_")[2])


def _official_task(entry: Mapping[str, Any], truth: Sequence[Sequence[str]], long_context: bool) -> Task:
    classes = tuple(entry["involved_classes"])
    tools = {tool.name: tool for tool in official_tools(classes)}
    scenario = Scenario(
        classes=classes,
        initial_config=entry["initial_config"],
        user_turns=tuple("\n".join(message["content"] for message in turn) for turn in entry["question"]),
        truth=tuple(tuple(_truth_call(text, tools) for text in turn) for turn in truth),
        revealed={int(turn): tuple(names) for turn, names in entry.get("missed_function", {}).items()},
        long_context=long_context,
    )
    return Task(entry["id"], {"scenario": scenario})


def _truth_call(text: str, tools: Mapping[str, Tool]) -> ParsedCall:
    parsed = parse_call_list(text, tools)
    if len(parsed.calls) != 1 or not isinstance(parsed.calls[0], ParsedCall):
        raise ValueError(f"the benchmark's call {text!r} is not one call with literal arguments: {parsed}.")
    return parsed.calls[0]
