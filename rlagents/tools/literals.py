"""A reader of Python call lists whose arguments are literals: ``[f(a=1), g("x", [True, None])]``.

Model-written text is read by this grammar and by nothing else. There is no name lookup, no attribute, no operator and
no f-string in it, so no text can run anything; and it is a plain left-to-right reader of bounded depth, so no text can
exhaust the stack or take more than linear time (Python's own parser promises neither).

    calls  :=  "[" [call ("," call)* [","]] "]"  |  call ("," call)*
    call   :=  NAME "(" [argument ("," argument)* [","]] ")"
    argument := NAME "=" value | value
    value  :=  STRING+ | ["-" | "+"] NUMBER | "True" | "False" | "None" | list | tuple | dict
"""

import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_DEPTH = 16
MAX_CALLS = 64
MAX_DIGITS = 64

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r\n\f]+)
    | (?P<string>'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'(?:[^'\\\n\r]|\\.)*+'|"(?:[^"\\\n\r]|\\.)*+")
    | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<mark>[][(){},:=+-])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})|(?P<char>.))",
    re.DOTALL,
)
_ESCAPED = {"\n": "", "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPED |= {mark: mark for mark in "\\'\""}
_CONSTANTS = {"True": True, "False": False, "None": None}


class LiteralError(ValueError):
    """The text is not in the grammar, or is beyond its bounds. The message says where and what was expected."""


@dataclass(frozen=True)
class WrittenCall:
    """A call as it was written: arguments are literals, not yet bound to parameter names."""

    name: str
    positional: tuple[Any, ...]
    named: dict[str, Any]


def read_calls(text: str) -> list[WrittenCall]:
    """Read a whole text as a list of calls, with or without the outer brackets.

    Raises :class:`LiteralError`, and nothing else, for a text outside the grammar, more than ``MAX_CALLS`` calls,
    values nested deeper than ``MAX_DEPTH``, numbers of more than ``MAX_DIGITS`` characters or beyond the range of a
    float, and strings that are not valid Unicode (lone surrogates).
    """
    reader = _Reader(_tokens(text))
    bracketed = reader.take("[")
    calls: list[WrittenCall] = []
    while reader.peek() not in ("]", ""):
        calls.append(reader.call())
        if len(calls) > MAX_CALLS:
            raise LiteralError(f"more than {MAX_CALLS} calls in one turn")
        if not reader.take(","):
            break
    if bracketed:
        reader.expect("]")
    if reader.peek():
        reader.fail("the end of the text")
    return calls


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise LiteralError(f"unexpected {text[position : position + 12]!r} at character {position}")
        if match.lastgroup != "space":
            tokens.append((match.lastgroup or "", match.group()))
        position = match.end()
    return tokens


class _Reader:
    """Recursive descent over the tokens; ``peek`` returns "" at the end."""

    def __init__(self, tokens: list[tuple[str, str]]):
        self._tokens = [*tokens, ("end", "")]
        self._at = 0

    def peek(self, ahead: int = 0) -> str:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)][1]

    def take(self, mark: str) -> bool:
        found = self._tokens[self._at] == ("mark", mark)
        self._at += found
        return found

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            self.fail(repr(mark))

    def fail(self, expected: str) -> NoReturn:
        found = self.peek()[:24]
        raise LiteralError(f"expected {expected}, found {repr(found) if found else 'the end of the text'}")

    def call(self) -> WrittenCall:
        kind, name = self._tokens[self._at]
        if kind != "name":
            self.fail("the name of a tool")
        self._at += 1
        self.expect("(")
        positional: list[Any] = []
        named: dict[str, Any] = {}
        while not self.take(")"):
            kind, word = self._tokens[self._at]
            if kind == "name" and self.peek(1) == "=":
                if word in named:
                    raise LiteralError(f"argument {word!r} is given twice")
                self._at += 2
                named[word] = self.value(0)
            elif named:
                self.fail("a named argument: positional arguments come first")
            else:
                positional.append(self.value(0))
            if not self.take(","):
                self.expect(")")
                break
        return WrittenCall(name, tuple(positional), named)

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise LiteralError(f"values are nested deeper than {MAX_DEPTH}")
        kind, word = self._tokens[self._at]
        if kind == "string":
            parts = []
            while self._tokens[self._at][0] == "string":
                parts.append(_string(self.peek()))
                self._at += 1
            return "".join(parts)
        if word in ("-", "+"):
            self._at += 1
            return -self._number() if word == "-" else self._number()
        if kind == "number":
            return self._number()
        if word in _CONSTANTS:
            self._at += 1
            return _CONSTANTS[word]
        if self.take("["):
            return self._items("]", depth)[0]
        if self.take("("):
            items, is_tuple = self._items(")", depth)
            return tuple(items) if is_tuple or not items else items[0]
        if self.take("{"):
            return self._dict(depth)
        self.fail("a literal: a string, number, True, False, None, list, tuple or dict")

    def _items(self, end: str, depth: int) -> tuple[list[Any], bool]:
        items = []
        comma = False
        while not self.take(end):
            items.append(self.value(depth + 1))
            if not self.take(","):
                self.expect(end)
                break
            comma = True
        return items, comma

    def _dict(self, depth: int) -> dict[Any, Any]:
        items = {}
        while not self.take("}"):
            key = self.value(depth + 1)
            if not isinstance(key, (str, int, float, type(None))):
                raise LiteralError(f"a dict key is a string or a number, not a {type(key).__name__}")
            self.expect(":")
            items[key] = self.value(depth + 1)
            if not self.take(","):
                self.expect("}")
                break
        return items

    def _number(self) -> int | float:
        kind, word = self._tokens[self._at]
        if kind != "number":
            self.fail("a number")
        if len(word) > MAX_DIGITS:
            raise LiteralError(f"a number of more than {MAX_DIGITS} characters")
        self._at += 1
        if word.isdigit():
            if word[0] == "0" and word.strip("0"):
                raise LiteralError(f"the integer {word} has leading zeros; write it as a string or without them")
            return int(word)
        number = float(word)
        if not math.isfinite(number):
            raise LiteralError(f"the number {word} is too large")
        return number


def _string(token: str) -> str:
    quotes = 3 if token[:3] in ("'''", '"""') and len(token) >= 6 else 1
    body = token[quotes:-quotes]
    if "\\" in body:
        body = _ESCAPE.sub(_unescape, body)
    if not body.isascii() and any("\ud800" <= char <= "\udfff" for char in body):
        raise LiteralError("a string holds a lone surrogate, which is not valid Unicode")
    return body


def _unescape(match: re.Match[str]) -> str:
    if match["octal"]:
        return chr(int(match["octal"], 8))
    code = match["x"] or match["u"] or match["U"]
    if code:
        number = int(code, 16)
        if number > 0x10FFFF:
            raise LiteralError(f"\\U{code} is beyond the last Unicode character")
        return chr(number)
    char = match["char"]
    if char in "xuUN":
        raise LiteralError(f"the escape \\{char} in a string is incomplete or not supported")
    return _ESCAPED.get(char, match.group())
