"""Does a chat template only ever append? Asked of its behaviour on probe conversations, never of its source.

A template is append-only if, for every conversation: rendering ``messages`` with the generation prompt, then the
assistant's text, then a closing string that is always the same, is the beginning of every longer render. Only then can
tokens sampled turn by turn be the tokens of the whole conversation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2

from rlagents.facts import Message

Tools = Sequence[Mapping[str, Any]] | None
Render = Callable[[Sequence[Message], Tools, bool], str]
"""``(messages, tools, add_generation_prompt) -> text``"""


class RewritingTemplateError(ValueError):
    """A chat template rewrites history; says which message changed and what was found."""


@dataclass(frozen=True)
class Probe:
    """A conversation: opening messages, then turns of (assistant text, observation messages)."""

    name: str
    opening: Sequence[Message]
    turns: Sequence[tuple[str, Sequence[Message]]]
    tools: Tools = None


def _says(role: str, content: str) -> Message:
    return {"role": role, "content": content}


SYSTEM = _says("system", "Probe the template.")
QUESTION = _says("user", "What is 2 + 2?")
THOUGHT = "<think>\nTwo and two.\n</think>\n\nIt is 4."
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'
TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
    },
)
_AGAIN = [_says("user", "And 3 + 3?")]
_RESULT = [_says("tool", "four")]
_RESULTS = [_says("tool", "four"), _says("tool", "six"), _says("tool", "ten")]

PROBES = (
    Probe("plain", [QUESTION], [("It is 4.", _AGAIN), ("It is 6.", _AGAIN), ("Still 6.", [])]),
    Probe("system message", [SYSTEM, QUESTION], [("It is 4.", _AGAIN), ("It is 6.", [])]),
    Probe("thoughts", [QUESTION], [(THOUGHT, _AGAIN), (THOUGHT, _AGAIN), ("It is 6.", [])]),
    Probe("tool results", [SYSTEM, QUESTION], [(CALL, _RESULT), (THOUGHT + CALL, _RESULTS), (CALL, _AGAIN), ("6", [])]),
    Probe("tool schemas", [SYSTEM, QUESTION], [(CALL, _RESULTS), ("It is 4.", _AGAIN), (CALL, _RESULT)], TOOLS),
    Probe("tool schemas, no system message", [QUESTION], [(CALL, _RESULTS), (THOUGHT, _AGAIN), ("6", [])], TOOLS),
)


def closing_string(render: Render) -> str:
    """What the template writes after an assistant's text (``<|im_end|>\\n``, say), if it is append-only.

    Probes that the template refuses by raising (a role it does not know) are passed over, save the plain one.

    Raises:
      RewritingTemplateError: the template is not append-only.
    """
    closings = {}
    for probe in PROBES:
        try:
            closings[_closing(render, probe)] = probe.name
        except jinja2.TemplateError as error:
            if probe is PROBES[0] or isinstance(error, jinja2.TemplateSyntaxError):
                raise
    if len(closings) > 1:
        raise RewritingTemplateError(f"the template closes an assistant turn in more than one way: {closings}.")
    return next(iter(closings))


def _closing(render: Render, probe: Probe) -> str:
    """Walk through ``probe``; its closing string, or ``RewritingTemplateError``."""
    messages, closings = list(probe.opening), set()
    for text, observation in probe.turns:
        opened = render(messages, probe.tools, True)
        answered = [*messages, _says("assistant", text)]
        finished = render(answered, probe.tools, False)
        if not finished.startswith(opened + text):
            raise _rewritten(probe, answered, opened + text, finished)
        closings.add(finished[len(opened + text) :])
        messages = [*answered, *observation]
        continued = render(messages, probe.tools, True)
        if not continued.startswith(finished):
            raise _rewritten(probe, messages, finished, continued)
    if len(closings) > 1:
        raise RewritingTemplateError(
            f"the template closes an assistant turn in more than one way: {sorted(closings)} (probe {probe.name!r})."
        )
    return closings.pop()


def _rewritten(probe: Probe, messages: Sequence[Message], expected: str, found: str) -> RewritingTemplateError:
    at = _first_difference(expected, found)
    return RewritingTemplateError(
        f"the chat template rewrites history (probe {probe.name!r}): with {len(messages)} messages, the last from "
        f"{messages[-1]['role']!r}, {_culprit(messages, expected[:at])} reads {_excerpt(found, at)} where "
        f"{_excerpt(expected, at)} stood. Tokens sampled turn by turn would not be the tokens of the conversation. Use "
        "an append-only template: templates.QWEN3, templates.LLAMA31, or one of your own."
    )


def _culprit(messages: Sequence[Message], unchanged: str) -> str:
    """The first message that does not stand whole, in order, in the unchanged text."""
    at = 0
    for index, message in enumerate(messages):
        found = unchanged.find(message["content"], at)
        if found < 0:
            return f"message {index} ({message['role']})"
        at = found + len(message["content"])
    return f"what follows message {len(messages) - 1} ({messages[-1]['role']})"


def _first_difference(text: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(text, other)) if a != b), min(len(text), len(other)))


def _excerpt(text: str, at: int) -> str:
    return repr(text[max(0, at - 12) : at + 28])


def differs(render: Render, other: Render) -> str | None:
    """Where two templates differ on single-turn conversations; None if they render all of them alike.

    Compared are opening messages with the generation prompt, with and without system message and tools, and a finished
    turn: one with a thought, or, where the generation prompt has closed the thoughts already, one without.
    """
    for probe in PROBES:
        difference = _difference(render, other, probe.opening, probe.tools, True)
        if difference is None:
            finished = [[*probe.opening, _says("assistant", text)] for text in (THOUGHT, "It is 4.")]
            found = [_difference(render, other, messages, probe.tools, False) for messages in finished]
            difference = None if None in found else found[0]
        if difference is not None:
            return f"probe {probe.name!r}: {difference}"
    return None


def _difference(render: Render, other: Render, messages: Sequence[Message], tools: Tools, generate: bool) -> str | None:
    expected, found = (_render_or_refusal(one, messages, tools, generate) for one in (render, other))
    if found == expected:
        return None
    at = _first_difference(expected, found)
    return f"{_excerpt(found, at)} instead of {_excerpt(expected, at)}"


def _render_or_refusal(render: Render, messages: Sequence[Message], tools: Tools, generate: bool) -> str:
    try:
        return render(messages, tools, generate)
    except jinja2.TemplateSyntaxError:
        raise
    except jinja2.TemplateError as error:
        return f"refused: {error}"
