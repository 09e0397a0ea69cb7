"""How tools are shown to a model and how it writes its calls: one object per way of writing.

A format is chosen by handing the object over. Both are frozen and picklable, and reading back what ``render`` wrote
gives the same calls.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rlagents.tools.descriptions import Parameter, Tool
from rlagents.tools.function_calls import ParsedCall, ParsedTurn, parse_call_list, parse_tool_call_tags


class CallFormat(Protocol):
    """One way of writing tool calls."""

    def manual(self, tools: Sequence[Tool]) -> str:
        """The system message: how to call, and every tool."""
        ...

    def describe(self, tools: Sequence[Tool]) -> str:
        """The tools alone, one after another."""
        ...

    def parse(self, text: str, tools: Mapping[str, Tool]) -> ParsedTurn:
        """What an assistant turn asks for. Raises nothing, whatever the text."""
        ...

    def render(self, calls: Sequence[ParsedCall]) -> str:
        """The assistant turn that asks for ``calls``."""
        ...


PYTHON_PREFACE = """\
You act for a user by calling tools. To call tools, answer with a list of calls and nothing else:
[first_tool(argument='text', other_argument=3), second_tool()]
Arguments are literals: strings, numbers, True, False, None, lists or dicts. Each call is answered by a message with \
its result; look at the results and call again as long as something remains to be done. When the request is fulfilled, \
or the tools or the user's words do not allow it, answer with plain words instead of calls.

The tools:"""

TAGGED_PREFACE = """\
You act for a user by calling tools. For each call write a JSON object with the tool's name and its arguments:
<tool_call>
{"name": "tool", "arguments": {"argument": "text"}}
</tool_call>
Each call is answered by a message with its result; look at the results and call again as long as something remains to \
be done. When the request is fulfilled, or the tools or the user's words do not allow it, answer with plain words only.

The tools, one JSON schema per line:"""


@dataclass(frozen=True)
class PythonCalls:
    """Calls as a Python list with literal arguments; tools as signatures with a sentence and a line per parameter."""

    preface: str = PYTHON_PREFACE

    def manual(self, tools: Sequence[Tool]) -> str:
        """The preface and every tool."""
        return f"{self.preface}\n{self.describe(tools)}"

    def describe(self, tools: Sequence[Tool]) -> str:
        """``name(parameter: type, optional: type = default) - description`` and an indented line per parameter."""
        return "\n".join(line for tool in tools for line in _python_lines(tool))

    def parse(self, text: str, tools: Mapping[str, Tool]) -> ParsedTurn:
        """See :func:`rlagents.tools.function_calls.parse_call_list`."""
        return parse_call_list(text, tools)

    def render(self, calls: Sequence[ParsedCall]) -> str:
        """``[f(a=1), g(b='x')]``, values by ``repr``."""
        return "[" + ", ".join(map(render_call, calls)) + "]"


@dataclass(frozen=True)
class TaggedJsonCalls:
    """Calls as JSON objects in ``<tool_call>`` tags, tools as JSON schemas: the way of writing Qwen models know."""

    preface: str = TAGGED_PREFACE

    def manual(self, tools: Sequence[Tool]) -> str:
        """The preface and the tools between ``<tools>`` tags."""
        return f"{self.preface}\n<tools>\n{self.describe(tools)}\n</tools>"

    def describe(self, tools: Sequence[Tool]) -> str:
        """One JSON object per line."""
        return "\n".join(json.dumps(json_schema(tool), ensure_ascii=False) for tool in tools)

    def parse(self, text: str, tools: Mapping[str, Tool]) -> ParsedTurn:
        """See :func:`rlagents.tools.function_calls.parse_tool_call_tags`."""
        return parse_tool_call_tags(text, tools)

    def render(self, calls: Sequence[ParsedCall]) -> str:
        """One tagged object per call."""
        objects = ({"name": call.name, "arguments": call.arguments} for call in calls)
        # A closing tag in a string would end the call: "\/" is JSON's other way of writing "/".
        texts = (json.dumps(item, ensure_ascii=False).replace("</", "<\\/") for item in objects)
        return "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in texts)


def render_call(call: ParsedCall) -> str:
    """``f(a=1, b='x')``: a Python expression of literals only."""
    return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"


def json_schema(tool: Tool) -> dict[str, Any]:
    """A tool as the JSON schema that chat templates and FC models expect."""
    properties = {parameter.name: dict(parameter.schema) for parameter in tool.parameters}
    required = [parameter.name for parameter in tool.parameters if parameter.required]
    parameters = {"type": "object", "properties": properties, "required": required}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _python_lines(tool: Tool) -> list[str]:
    head = f"{tool.name}({', '.join(map(_python_parameter, tool.parameters))})"
    lines = [f"{head} - {tool.description}" if tool.description else head]
    for parameter in tool.parameters:
        if parameter.schema.get("description"):
            lines.append(f"    {parameter.name}: {parameter.schema['description']}")
    return lines


def _python_parameter(parameter: Parameter) -> str:
    kind = parameter.schema.get("type")
    items = parameter.schema.get("items", {}).get("type")
    text = parameter.name
    if kind:
        text += f": {kind} of {items}" if items else f": {kind}"
    return text if parameter.required else f"{text} = {parameter.schema.get('default')!r}"
