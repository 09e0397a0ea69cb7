"""Unlimited multi-turn tasks over the BFCL back-ends, small enough to be learned from scratch on a laptop.

Environment, reward and messages are those of the official tasks; what differs is the language (a few hundred words),
the manual (signatures of the one back-end's tools) and the results (one value, "ok" or "error"). Nothing is ambiguous:
what makes a task hard is to pick the tool, to copy the right words, and to do so in every turn.

    tasks = ProceduralTasks(TRAIN, levels=(1, 2, 3), seed=0)
    environment = procedural_environment()
    environment.opening(tasks[0]), environment.expert(tasks[0])
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_backends import BackEnds
from rlagents.environments.bfcl_tasks import Scenario
from rlagents.environments.procedural.domains import DOMAINS
from rlagents.environments.procedural.results import DONE, FAILED, NOTHING, compact_result
from rlagents.environments.procedural.words import VALUES
from rlagents.environments.procedural.world import Domain, Request, UnwritableError, World
from rlagents.facts import Message, Task
from rlagents.tools.call_formats import CallFormat, PythonCalls, render_call
from rlagents.tools.descriptions import Tool

CLOSING = "done."
COMPACT_PREFACE = "answer with one call, or with done."
_MAX_ATTEMPTS = 1000


@dataclass(frozen=True)
class Level:
    """Bounds of one difficulty.

    Attributes:
      turns: user turns.
      min_calls, max_calls: calls in each turn.
      outputs: at least this many requests take an argument from a result; 0 means that none does.
    """

    turns: int
    min_calls: int
    max_calls: int
    outputs: int


LEVELS = {1: Level(1, 1, 2, 0), 2: Level(2, 1, 2, 1), 3: Level(3, 1, 3, 2), 4: Level(4, 1, 3, 3)}


@dataclass(frozen=True)
class Split:
    """A part of all tasks there are: those whose content hashes into ``[start, stop)`` of 100 buckets.

    Content is what the user says and the calls that answer it, so disjoint splits share no task, whatever the seeds.
    """

    name: str
    start: int
    stop: int

    def __contains__(self, scenario: Scenario) -> bool:
        calls = ";".join(",".join(map(render_call, turn)) for turn in scenario.truth)
        content = "\n".join((*scenario.user_turns, calls))
        bucket = int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest(), "big") % 100
        return self.start <= bucket < self.stop


TRAIN = Split("train", 0, 75)
HELD_OUT = Split("held_out", 75, 100)


@dataclass(frozen=True)
class ProceduralTasks:
    """Tasks by index, without end: ``tasks[i]`` is the same task whenever and wherever it is asked for. Picklable.

    Attributes:
      split: ``TRAIN`` or ``HELD_OUT``.
      levels: difficulties, taken in turn by index.
      seed: another seed gives another order of the same split.
      domains: which back-ends; each task has one of them.
    """

    split: Split
    levels: Sequence[int] = (1, 2, 3)
    seed: int = 0
    domains: Sequence[int] = field(default_factory=lambda: range(len(DOMAINS)))

    def __post_init__(self):
        unknown = [level for level in self.levels if level not in LEVELS]
        if unknown or not self.levels:
            raise ValueError(f"levels are taken from {sorted(LEVELS)}, got {list(self.levels)}.")

    def __getitem__(self, index: int) -> Task:
        """The task at any ``index >= 0``. Raises ``IndexError`` for a negative one."""
        if index < 0:
            raise IndexError(f"tasks are counted from 0 without end; there is no task {index}.")
        level = self.levels[index % len(self.levels)]
        name = f"{self.split.name}-{self.seed}-{level}-{index}"
        source = random.Random(name)
        domain = DOMAINS[source.choice(self.domains)]
        for _ in range(_MAX_ATTEMPTS):
            try:
                scenario = write_scenario(domain, LEVELS[level], source)
            except UnwritableError:
                continue
            if scenario in self.split:
                return Task(f"procedural-{name}", {"scenario": scenario})
        raise RuntimeError(f"no task of level {level} in {domain.back_end} after {_MAX_ATTEMPTS} attempts.")


def write_scenario(domain: Domain, level: Level, source: random.Random) -> Scenario:
    """Write one task of a level. Raises :class:`UnwritableError` if chance led into a dead end; try again."""
    config = {domain.back_end: domain.initial_config(source)}
    back_ends = BackEnds.load([domain.back_end], config, domain.tools, long_context=False)
    world = World(source, back_ends, domain.back_end)
    dependent = set(source.sample(range(level.turns), min(level.outputs, level.turns)))
    requests = [request for request in domain.requests if level.outputs or not request.uses_output]
    user_turns = []
    for turn in range(level.turns):
        world.turns.append([])
        num_calls = source.randint(level.min_calls, level.max_calls)
        first = [request for request in requests if request.uses_output] if turn in dependent else requests
        words = []
        while (left := num_calls - len(world.turns[-1])) > 0:
            words.append(_ask(world, [request for request in (requests if words else first) if request.calls <= left]))
        user_turns.append(" then ".join(words) + ".")
    truth = tuple(map(tuple, world.turns))
    return Scenario((domain.back_end,), config, tuple(user_turns), truth)


def _ask(world: World, requests: Sequence[Request]) -> str:
    """One request that suits the world, tried in random order."""
    made = world.num_calls
    for request in world.random.sample(requests, len(requests)):
        try:
            return request.write(world)
        except UnwritableError:
            if world.num_calls != made:
                raise
    raise UnwritableError


def compact_tools(classes: tuple[str, ...]) -> tuple[Tool, ...]:
    """The tools of generated tasks: a part of each back-end's, as bare signatures."""
    return tuple(tool for domain in DOMAINS if domain.back_end in classes for tool in domain.tools)


COMPACT_CALLS = PythonCalls(COMPACT_PREFACE)


def procedural_environment(format: CallFormat = COMPACT_CALLS) -> BfclEnvironment:
    """The official environment with a short manual, short results and short limits, in any way of writing calls."""
    return BfclEnvironment(
        format=format,
        tools=compact_tools,
        show=compact_result,
        max_steps=6,
        max_turns=20,
        max_output_characters=120,
        closing=CLOSING,
    )


def expert_messages(environment: BfclEnvironment, task: Task) -> list[Message]:
    """The whole conversation in which the expert solves a task."""
    messages = list(environment.opening(task).messages)
    episode = environment.start(task)
    for text in (text for turn in environment.expert(task) for text in turn):
        messages.append({"role": "assistant", "content": text})
        messages.extend(episode.step(text).messages)
    return messages


def corpus(num_tasks: int, seed: int, environment: BfclEnvironment | None = None) -> list[str]:
    """Texts to build a tokenizer from: every message of ``num_tasks`` training conversations of all levels.

    The first texts hold every value, pair of digits and answer there is, so that none is missing however few the
    conversations.
    """
    environment = environment or procedural_environment()
    tasks = ProceduralTasks(TRAIN, levels=tuple(LEVELS), seed=seed)
    texts = [f"'{word}'" for word in sorted(VALUES)]
    texts += [
        " ".join("0123456789"),
        " ".join(f"{pair:02d}" for pair in range(100)),
        "True",
        "False",
        DONE,
        FAILED,
        NOTHING,
        CLOSING,
    ]
    # The marks between values in every form a result can take.
    texts += [
        "[]",
        "[1, 2]",
        "-1.5",
        f"[{NOTHING}, {NOTHING}]",
        f"['on', {NOTHING}, 'off']",
        f"[{NOTHING}, 'on', 'off']",
    ]
    for index in range(num_tasks):
        texts.extend(message["content"] for message in expert_messages(environment, tasks[index]))
    return texts
