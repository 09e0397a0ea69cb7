"""Ways of writing calls: reading back what was rendered, and manuals that name everything."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlagents.tools.call_formats import PythonCalls, TaggedJsonCalls, json_schema
from rlagents.tools.descriptions import Parameter, Tool
from rlagents.tools.function_calls import ParsedCall, ParsedTurn

FORMATS = (PythonCalls(), TaggedJsonCalls())
TAIL = Tool(
    "tail",
    (
        Parameter("file_name", {"type": "string", "description": "Which file."}),
        Parameter("lines", {"type": "integer", "default": 10}, required=False),
        Parameter("tags", {"type": "array", "items": {"type": "string"}}),
    ),
    "Show the end of a file.",
)
BARE = Tool("mv", (Parameter("source"), Parameter("destination")))
TOOLS = {tool.name: tool for tool in (TAIL, BARE)}

JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**9), 10**9), st.floats(-1e9, 1e9), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
CALLS = st.builds(ParsedCall, st.sampled_from(sorted(TOOLS)), st.dictionaries(st.sampled_from("abc"), JSON_VALUES))


@pytest.mark.parametrize("style", FORMATS, ids=lambda style: type(style).__name__)
@given(calls=st.lists(CALLS, min_size=1, max_size=4))
def test_reading_back_gives_the_same_calls(style, calls):
    assert style.parse(style.render(calls), TOOLS) == ParsedTurn(tuple(calls))


@pytest.mark.parametrize("style", FORMATS, ids=lambda style: type(style).__name__)
def test_a_tag_inside_a_string_ends_nothing(style):
    call = ParsedCall("mv", {"source": "</tool_call><tool_call>", "destination": "</think>[x] \" ' \\ \n"})
    assert style.parse(style.render([call, call]), TOOLS).calls == (call, call)


def test_python_manual_shows_signatures_defaults_and_parameter_lines():
    text = PythonCalls(preface="Tools:").manual([TAIL, BARE])
    assert text.splitlines() == [
        "Tools:",
        "tail(file_name: string, lines: integer = 10, tags: array of string) - Show the end of a file.",
        "    file_name: Which file.",
        "mv(source, destination)",
    ]


def test_tagged_manual_holds_one_schema_per_line():
    text = TaggedJsonCalls().manual([TAIL, BARE])
    lines = text.partition("<tools>\n")[2].partition("\n</tools>")[0].splitlines()
    assert [json.loads(line) for line in lines] == [json_schema(TAIL), json_schema(BARE)]
    assert json_schema(TAIL)["function"]["parameters"]["required"] == ["file_name", "tags"]


@pytest.mark.parametrize("style", FORMATS, ids=lambda style: type(style).__name__)
def test_formats_travel_to_workers(style):
    assert pickle.loads(pickle.dumps(style)) == style
