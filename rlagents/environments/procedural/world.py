"""Writing a task by doing it: requests make their calls on live back-ends and say what the user would have said.

So the truth is what was carried out, every call in it succeeded, and a later call can take what an earlier one gave.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rlagents.environments.bfcl_actions import call_covers
from rlagents.environments.bfcl_backends import BackEnds
from rlagents.tools.descriptions import Parameter, Tool
from rlagents.tools.function_calls import ParsedCall

T = TypeVar("T")


class UnwritableError(Exception):
    """The request does not suit the world as it is; another one, or another world, has to be tried."""


class World:
    """A back-end while a task is written on it.

    Attributes:
      random: the only source of chance.
      state: the live back-end, to see what is there. Requests change it through :meth:`call` alone.
      memory: what earlier turns' results said, for requests that refer back.
      turns: the calls so far, turn by turn.
    """

    def __init__(self, source: random.Random, back_ends: BackEnds, back_end: str):
        self.random = source
        self.state = back_ends.instances[back_end]
        self.memory: dict[str, Any] = {}
        self.turns: list[list[ParsedCall]] = []
        self._back_ends = back_ends

    @property
    def num_calls(self) -> int:
        """Calls made so far."""
        return sum(map(len, self.turns))

    def call(self, tool: str, /, **arguments: Any) -> Any:
        """Make a call, add it to the truth and return the tool's result.

        Raises :class:`UnwritableError` if it fails, or if one call could stand for both it and an earlier one: then
        losing one of them would not be noticed by a reward that asks whether each wanted call exists.
        """
        call = ParsedCall(tool, arguments)
        for earlier in (earlier for turn in self.turns for earlier in turn):
            if call_covers(earlier, call) or call_covers(call, earlier):
                raise UnwritableError
        execution = self._back_ends.execute(call)
        if execution.failed:
            raise UnwritableError
        self.turns[-1].append(call)
        return execution.value

    def pick(self, options: Sequence[T]) -> T:
        """One of the options; raises :class:`UnwritableError` if there is none."""
        if not options:
            raise UnwritableError
        return self.random.choice(options)

    def pick_new(self, options: Sequence[T], taken: Sequence[T] | Mapping[T, Any]) -> T:
        """One of the options that is not taken yet."""
        return self.pick([option for option in options if option not in taken])

    def recall(self, key: str) -> Any:
        """What an earlier result said; raises :class:`UnwritableError` if none did."""
        if key not in self.memory:
            raise UnwritableError
        return self.memory[key]


@dataclass(frozen=True)
class Request:
    """One thing a user may ask for. ``write`` makes its calls on the world and returns the user's words."""

    write: Callable[[World], str]
    calls: int = 1
    uses_output: bool = False
    """True if an argument comes from a result, of this request or of an earlier one."""


@dataclass(frozen=True)
class Domain:
    """One back-end: how its worlds start, what users ask of it, what the manual and the results show.

    Attributes:
      back_end: class name.
      tools: the tools of its manual, without words.
      initial_config: draws the state a task starts in.
      requests: what users ask for.
      shown: tool -> the part of its result that is shown; the others answer "ok".
    """

    back_end: str
    tools: tuple[Tool, ...]
    initial_config: Callable[[random.Random], dict[str, Any]]
    requests: tuple[Request, ...]
    shown: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)


def tool(name: str, *parameters: str) -> Tool:
    """A tool that the manual shows as a bare signature."""
    return Tool(name, tuple(map(Parameter, parameters)))
