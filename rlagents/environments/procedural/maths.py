"""Arithmetic whose results feed the next call. The back-end has no state: what counts is which calls are made."""

import random
from typing import Any

from rlagents.environments.procedural.world import Domain, Request, World, tool

_SMALL = range(2, 10)


def _initial_config(source: random.Random) -> dict[str, Any]:
    return {}


def _calculate(world: World, name: str, a: int, b: int) -> int:
    result = world.call(name, a=a, b=b)["result"]
    world.memory["result"] = result
    return world.pick([result] if 0 <= result < 100 else [])


def _add(world: World) -> str:
    a, b = world.pick(range(10, 60)), world.pick(_SMALL)
    _calculate(world, "add", a, b)
    return f"add {a} and {b}"


def _subtract(world: World) -> str:
    a, b = world.pick(range(10, 60)), world.pick(_SMALL)
    _calculate(world, "subtract", a, b)
    return f"subtract {b} from {a}"


def _multiply(world: World) -> str:
    a, b = world.pick(_SMALL), world.pick(_SMALL)
    _calculate(world, "multiply", a, b)
    return f"multiply {a} by {b}"


def _extreme(world: World, name: str, word: str) -> str:
    numbers = world.random.sample(range(10, 100), 3)
    world.memory["result"] = world.call(name, numbers=numbers)["result"]
    return f"find the {word} of {numbers[0]}, {numbers[1]} and {numbers[2]}"


def _largest(world: World) -> str:
    return _extreme(world, "max_value", "largest")


def _smallest(world: World) -> str:
    return _extreme(world, "min_value", "smallest")


def _add_to_result(world: World) -> str:
    b = world.pick(_SMALL)
    _calculate(world, "add", world.recall("result"), b)
    return f"add the result and {b}"


def _subtract_from_result(world: World) -> str:
    b = world.pick(_SMALL)
    _calculate(world, "subtract", world.recall("result"), b)
    return f"subtract {b} from the result"


def _multiply_then(world: World) -> str:
    text = _multiply(world)
    return f"{text} and {world.pick((_add_to_result, _subtract_from_result))(world)}"


def _extreme_then(world: World) -> str:
    text = world.pick((_largest, _smallest))(world)
    return f"{text} and {world.pick((_add_to_result, _subtract_from_result))(world)}"


def _three_steps(world: World) -> str:
    return f"{_multiply_then(world)} and {world.pick((_add_to_result, _subtract_from_result))(world)}"


MATHS_DOMAIN = Domain(
    back_end="MathAPI",
    tools=(
        tool("add", "a", "b"),
        tool("max_value", "numbers"),
        tool("min_value", "numbers"),
        tool("multiply", "a", "b"),
        tool("subtract", "a", "b"),
    ),
    initial_config=_initial_config,
    requests=(
        *map(Request, (_add, _subtract, _multiply, _largest, _smallest)),
        *(Request(write, 1, True) for write in (_add_to_result, _subtract_from_result)),
        *(Request(write, 2, True) for write in (_multiply_then, _extreme_then)),
        Request(_three_steps, calls=3, uses_output=True),
    ),
    shown={name: lambda result: result["result"] for name in ("add", "max_value", "min_value", "multiply", "subtract")},
)
