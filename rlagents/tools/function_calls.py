"""Tool calls in text a model wrote: what it asked for, as data.

Two ways of writing are read: a Python-style list of calls with literal arguments, and JSON objects in
``<tool_call>`` tags. Whatever the text, the answer is a :class:`ParsedTurn`; nothing in a text is ever evaluated, and
reading raises nothing. A call of an unknown tool, or with arguments that cannot be bound, is a :class:`RefusedCall`
whose message is the tool's answer; a text that is no call at all ends the model's turn.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlagents.tools.descriptions import Tool
from rlagents.tools.literals import MAX_CALLS, MAX_DEPTH, MAX_DIGITS, LiteralError, WrittenCall, read_calls

MAX_CHARACTERS = 32_768

_LOOKS_LIKE_CALL = re.compile(r"\[|[A-Za-z_]\w*\(")
_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


@dataclass(frozen=True)
class ParsedCall:
    """A call of a known tool; every argument is bound to a name and is a literal."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RefusedCall:
    """A well-formed call that cannot be made; ``message`` says why."""

    name: str
    message: str


@dataclass(frozen=True)
class ParsedTurn:
    """What one assistant turn asks for. ``error`` is set where a text tried to call tools and failed as a whole."""

    calls: tuple[ParsedCall | RefusedCall, ...] = ()
    error: str = ""


def parse_call_list(text: str, tools: Mapping[str, Tool]) -> ParsedTurn:
    """Read ``[f(a=1), g("x")]``: the whole text is one list of calls, or else it is words and calls nothing.

    A code fence around it, missing outer brackets and a part before it that ``</think>`` ends are passed over.
    """
    text = _inside_fence(text)
    if not _LOOKS_LIKE_CALL.match(text):
        text = _inside_fence(_after_thoughts(text))
    if not _LOOKS_LIKE_CALL.match(text):
        return ParsedTurn()
    try:
        _check_text(text)
        return ParsedTurn(tuple(_bind(call, tools) for call in read_calls(text)))
    except LiteralError as error:
        return ParsedTurn(error=str(error))


def parse_tool_call_tags(text: str, tools: Mapping[str, Tool]) -> ParsedTurn:
    """Read ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, one or several; other words are passed over.

    The last closing tag may be missing. One malformed object spoils the turn: it calls nothing and has an ``error``.
    """
    text = _after_thoughts(text)
    try:
        bodies = _TAGGED.findall(text) if "<tool_call>" in text else []
        if not bodies:
            return ParsedTurn()
        _check_text(text)
        if len(bodies) > MAX_CALLS:
            raise LiteralError(f"more than {MAX_CALLS} calls in one turn")
        return ParsedTurn(tuple(_bind(_json_call(body), tools) for body in bodies))
    except LiteralError as error:
        return ParsedTurn(error=str(error))


def _inside_fence(text: str) -> str:
    return text.strip("`\n\r\t ").removeprefix("python\n")


def _after_thoughts(text: str) -> str:
    return text.rpartition("</think>")[2]


def _check_text(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise LiteralError(f"the turn has {len(text)} characters; at most {MAX_CHARACTERS} are read")
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise LiteralError("the text holds a lone surrogate, which is not valid Unicode")


def _bind(call: WrittenCall, tools: Mapping[str, Tool]) -> ParsedCall | RefusedCall:
    """Give positional arguments their names; names that the tool does not know are left for the tool to refuse."""
    tool = tools.get(call.name)
    if tool is None:
        return RefusedCall(call.name, f"name '{call.name}' is not defined")
    names = [parameter.name for parameter in tool.parameters]
    if len(call.positional) > len(names):
        message = f"{call.name}() takes {len(names)} arguments but {len(call.positional)} were given"
        return RefusedCall(call.name, message)
    arguments = dict(zip(names, call.positional))
    for name, value in call.named.items():
        if name in arguments:
            return RefusedCall(call.name, f"{call.name}() got multiple values for argument '{name}'")
        arguments[name] = value
    return ParsedCall(call.name, arguments)


def _json_call(body: str) -> WrittenCall:
    try:
        value = json.loads(
            body,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_no_constant,
        )
    except LiteralError:
        raise
    except (ValueError, RecursionError) as error:
        raise LiteralError(f"a tool call is not valid JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise LiteralError('a tool call is a JSON object {"name": ..., "arguments": {...}}')
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        raise LiteralError(f'"arguments" is a JSON object, not a {type(arguments).__name__}')
    _check_text(value["name"])
    _check_value(arguments, -1)
    return WrittenCall(value["name"], (), arguments)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; of two values under one key, which one is meant cannot be known."""
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise LiteralError(f"the key {key[:MAX_DIGITS]!a} is given twice")
        members[key] = value
    return members


def _integer(word: str) -> int:
    if len(word) > MAX_DIGITS:
        raise LiteralError(f"a number of more than {MAX_DIGITS} characters")
    return int(word)


def _number(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise LiteralError(f"the number {word[:MAX_DIGITS]} is too large")
    return number


def _no_constant(word: str) -> None:
    raise LiteralError(f"{word} is not a JSON value")


def _check_value(value: Any, depth: int) -> None:
    """Bound the nesting and refuse lone surrogates, which JSON's own escapes can make."""
    if depth > MAX_DEPTH:
        raise LiteralError(f"values are nested deeper than {MAX_DEPTH}")
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key)
            _check_value(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_value(item, depth + 1)
