"""What a tool's answer looks like in generated tasks: the one value that matters, or "ok", or "error".

Nothing else may reach the conversation: a model can write any text into a state and read it back, and what is shown
has to stay within the closed vocabulary.
"""

import re
from typing import Any

from rlagents.environments.bfcl_backends import Execution
from rlagents.environments.procedural.domains import DOMAINS
from rlagents.environments.procedural.words import VALUES
from rlagents.tools.function_calls import ParsedCall, RefusedCall

DONE = "ok"
FAILED = "error"
NOTHING = "none"
"""Shown for a value that is missing or outside the vocabulary."""

_MAX_ITEMS = 6
_MAX_NUMBER = 10_000_000
_WORD = re.compile(r"([A-Za-z_]*)\d{0,6}")

_SHOWN = {name: read for domain in DOMAINS for name, read in domain.shown.items()}


def compact_result(call: ParsedCall | RefusedCall, execution: Execution) -> str:
    """Show a result in a few words: strings in quotes, numbers bare, lists in brackets."""
    if execution.failed:
        return FAILED
    read = _SHOWN.get(call.name)
    if read is None:
        return DONE
    try:
        return _plain(read(execution.value))
    except (KeyError, IndexError, TypeError):
        return NOTHING


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_plain_item(item) for item in value[:_MAX_ITEMS]) + "]"
    return _plain_item(value)


def _plain_item(value: Any) -> str:
    if isinstance(value, str):
        match = _WORD.fullmatch(value)
        known = match is not None and value != "" and (match[1] == "" or match[1] in VALUES)
        return repr(value) if known else NOTHING
    if isinstance(value, (bool, int, float)) and abs(value) < _MAX_NUMBER:
        # At most two decimals: a long fraction is nothing a user asks for.
        return repr(round(value, 2)) if isinstance(value, float) else repr(value)
    return NOTHING
