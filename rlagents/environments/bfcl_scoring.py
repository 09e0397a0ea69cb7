"""Whether a trajectory did what its task asked: the training reward, and the benchmark's own verdict beside it.

    R = R_state * R_action * R_finished
    R_state  = 1[every public attribute of every back-end equals that of the replayed truth, at the end]
    R_action = 1[the truth's calls were made]; see ``bfcl_actions``

Order, further calls and further arguments are free in R_action; the state is what further calls must not spoil.
R_finished is 0 for a trajectory that the step limit or the token budget cut short.

The benchmark's verdict is stricter in time and looser in deeds: after *each* turn that asks for calls the states must
agree, at least one call was made, and every result the truth got in that turn was also got (as often, since the start).
A trajectory that was cut short fails, which is the benchmark's rule (its code misses one cut in the very last turn).
Source: RC-GRPO (arXiv 2602.03025), appendix D; bfcl-eval 2026.3.23, multi_turn_checker.
"""

import copy
import functools
import hashlib
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlagents.environments.bfcl_backends import BackEnds, official_tools
from rlagents.environments.bfcl_tasks import Scenario
from rlagents.tools.function_calls import ParsedCall

State = Mapping[str, Mapping[str, Any]]
"""Class name -> public attribute -> value."""

_KEPT_REPLAYS = 512


@dataclass(frozen=True)
class TurnRecord:
    """What one user turn came to.

    Attributes:
      calls: those that could be bound, in order.
      steps: assistant turns in it that made calls.
      state_matches: whether the state after it is that of the truth.
      results_match: whether every result of the truth was got.
      refused: (number of ``calls`` made before it, name) of each call that could not be bound.
      garbled: whether it was ended by a text that tried to be a call and was none, or by nothing at all.
    """

    calls: tuple[ParsedCall, ...]
    steps: int
    state_matches: bool
    results_match: bool
    refused: tuple[tuple[int, str], ...] = ()
    garbled: bool = False


@dataclass(frozen=True)
class EpisodeRecord:
    """What a whole trajectory came to: small, picklable, and all that scoring needs besides the truth."""

    turns: tuple[TurnRecord, ...]
    finished: bool
    state_matches: bool
    num_calls: int
    num_failed_calls: int


@dataclass(frozen=True)
class Replay:
    """The truth carried out once: the start, and after each turn its results and the state."""

    start: BackEnds
    results: tuple[Counter[str], ...]
    states: tuple[State, ...]


def fingerprint(text: str) -> str:
    """A short stand-in for a result, which may be tens of thousands of characters long."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class _Replays:
    """The latest replays of this process, by content."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Replay] = OrderedDict()

    def get(self, scenario: Scenario) -> Replay:
        replay = self._kept.get(scenario.digest)
        if replay is None:
            replay = _replay(scenario)
            self._kept[scenario.digest] = replay
            if len(self._kept) > _KEPT_REPLAYS:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(scenario.digest)
        return replay


@functools.cache
def _replays() -> _Replays:
    return _Replays()


def replay_truth(scenario: Scenario) -> Replay:
    """The replay of a scenario's truth, made once per process while among the latest 512."""
    return _replays().get(scenario)


def _replay(scenario: Scenario) -> Replay:
    start = BackEnds.load(
        scenario.classes, scenario.initial_config, official_tools(scenario.classes), scenario.long_context
    )
    world = start.copy()
    results = []
    states: list[State] = []
    for turn in scenario.truth:
        results.append(Counter(fingerprint(world.execute(call).text) for call in turn))
        unchanged = states and state_equals(world, states[-1])
        states.append(states[-1] if unchanged else _public_state(world))
    return Replay(start, tuple(results), tuple(states))


def _public_state(world: BackEnds) -> State:
    return {
        name: {key: copy.deepcopy(value) for key, value in vars(instance).items() if not key.startswith("_")}
        for name, instance in world.instances.items()
    }


def state_equals(world: BackEnds, state: State) -> bool:
    """R_state: deep equality of every public attribute. A state that cannot even be compared (a cycle) is not equal."""
    try:
        return all(
            getattr(world.instances[name], key) == value
            for name, attributes in state.items()
            for key, value in attributes.items()
        )
    except (AttributeError, RecursionError):
        return False


def official_verdict(record: EpisodeRecord, scenario: Scenario) -> bool:
    """Whether the benchmark's checker would pass the trajectory."""
    if not record.finished or len(record.turns) != len(scenario.truth):
        return False
    return all(
        turn.steps > 0 and turn.state_matches and turn.results_match
        for turn, truth in zip(record.turns, scenario.truth)
        if truth
    )
