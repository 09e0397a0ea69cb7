"""Calls in model-written text: both ways of writing, the binding of arguments, and texts that must not run."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlagents.tools.descriptions import Parameter, Tool
from rlagents.tools.function_calls import (
    MAX_CHARACTERS,
    ParsedCall,
    ParsedTurn,
    RefusedCall,
    parse_call_list,
    parse_tool_call_tags,
)
from tests.tools.adversarial import BOMBS, CANARY_VARIABLE, INJECTIONS, random_texts

TOOLS = {
    "cd": Tool("cd", (Parameter("folder"),)),
    "mv": Tool("mv", (Parameter("source"), Parameter("destination"))),
    "pwd": Tool("pwd"),
}
READERS = (parse_call_list, parse_tool_call_tags)


def tagged(name: str, arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def test_positional_arguments_get_the_names_of_the_signature():
    parsed = parse_call_list("[mv('a', destination='b'), mv('c', 'd'), pwd()]", TOOLS)
    wanted = ({"source": "a", "destination": "b"}, {"source": "c", "destination": "d"})
    assert parsed == ParsedTurn((ParsedCall("mv", wanted[0]), ParsedCall("mv", wanted[1]), ParsedCall("pwd", {})))


def test_one_or_several_tagged_calls_with_words_between():
    text = f"First this. {tagged('cd', {'folder': 'a'})} then\n{tagged('mv', {'source': 1, 'destination': [None]})} end"
    parsed = parse_tool_call_tags(text, TOOLS)
    wanted = {"source": 1, "destination": [None]}
    assert parsed == ParsedTurn((ParsedCall("cd", {"folder": "a"}), ParsedCall("mv", wanted)))


def test_last_closing_tag_may_be_missing():
    text = tagged("pwd", {}).removesuffix("</tool_call>")
    assert parse_tool_call_tags(text, TOOLS) == ParsedTurn((ParsedCall("pwd", {}),))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "text", ["", "  \n", "Done.", "I moved the file (see above).", "5 > 3", "<think>[pwd()]</think>ok"]
)
def test_words_call_nothing_and_are_no_error(reader, text):
    assert reader(text, TOOLS) == ParsedTurn()


def test_thoughts_fences_and_missing_brackets_are_passed_over():
    wanted = ParsedTurn((ParsedCall("pwd", {}),))
    for text in ("[pwd()]", "pwd()", "```python\n[pwd()]\n```", "`[pwd()]`", "<think>[cd('x')]</think>\n[pwd()]"):
        assert parse_call_list(text, TOOLS) == wanted, text


def test_unknown_tools_and_unbindable_arguments_are_refused_one_by_one():
    calls = parse_call_list("[nope(1), pwd(), cd('a', 'b'), cd('a', folder='b')]", TOOLS).calls
    assert [type(call) for call in calls] == [RefusedCall, ParsedCall, RefusedCall, RefusedCall]
    assert isinstance(calls[0], RefusedCall)
    assert "not defined" in calls[0].message
    assert isinstance(calls[2], RefusedCall)
    assert "takes 1 arguments but 2" in calls[2].message
    assert isinstance(calls[3], RefusedCall)
    assert "multiple values" in calls[3].message


@pytest.mark.parametrize("text", ["[cd(folder=x)]", "[cd(", "cd('a') and more", "[cd('a'), 3]"])
def test_a_failed_attempt_is_an_error_and_calls_nothing(text):
    parsed = parse_call_list(text, TOOLS)
    assert parsed.calls == ()
    assert parsed.error


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        '{"name": 1}',
        '{"arguments": {}}',
        '{"name": "cd", "arguments": "a"}',
        '{"name": "cd", "arguments": {"folder": NaN}}',
        '{"name": "cd", "arguments": {"folder": -Infinity}}',
        '{"name": "cd", "arguments": {"folder": 1e999}}',
        '{"name": "cd", "arguments": {"folder": "\\ud800"}}',
        '{"name": "cd", "arguments": {"\\ud800": 1}}',
        '{"name": "\\ud800", "arguments": {}}',
        '{"name": "cd", "arguments": {"folder": "a", "folder": "b"}}',
        '{"name": "cd", "arguments": {"folder": {"a": 1, "\\u0061": 2}}}',
        '{"name": "cd", "name": "pwd", "arguments": {}}',
        '{"name": "cd", "arguments": {"folder": ' + "1" * 65 + "}}",
        '{"name": "cd", "arguments": {"folder": ' + "[" * 18 + "]" * 18 + "}}",
    ],
)
def test_one_malformed_object_spoils_the_turn(body):
    parsed = parse_tool_call_tags(f"{tagged('pwd', {})}<tool_call>{body}</tool_call>", TOOLS)
    assert parsed.calls == ()
    assert parsed.error


def test_both_ways_of_writing_refuse_what_is_given_twice_and_what_is_no_unicode():
    for same in ("[cd(folder='a', folder='b')]", tagged("cd", {"folder": "a"}).replace("}}", ', "folder": "b"}}')):
        assert "'folder' is given twice" in "".join(reader(same, TOOLS).error for reader in READERS), same
    for same in ("[\ud800()]", tagged("\ud800", {})):
        assert "lone surrogate" in "".join(reader(same, TOOLS).error for reader in READERS), same


def test_long_texts_are_not_read():
    text = "[cd('" + "a" * MAX_CHARACTERS + "')]"
    assert "characters" in parse_call_list(text, TOOLS).error
    assert "characters" in parse_tool_call_tags(tagged("cd", {"folder": text}), TOOLS).error


@pytest.mark.parametrize("reader", READERS)
def test_no_text_runs_or_raises(reader):
    os.environ.pop(CANARY_VARIABLE, None)
    for text in (*INJECTIONS, *BOMBS, *random_texts(1000, seed=1)):
        parsed = reader(text, TOOLS)
        assert isinstance(parsed, ParsedTurn)
        assert not (parsed.calls and parsed.error)
        for call in parsed.calls:
            assert call.name in TOOLS or isinstance(call, RefusedCall)
    assert CANARY_VARIABLE not in os.environ


@pytest.mark.parametrize("text", INJECTIONS[:20])
def test_injections_make_no_call(text):
    for call in parse_call_list(text, TOOLS).calls:
        assert isinstance(call, RefusedCall)
        assert "not defined" in call.message


@given(st.text())
def test_any_text_has_a_reading(text):
    for reader in READERS:
        assert isinstance(reader(text, TOOLS), ParsedTurn)
