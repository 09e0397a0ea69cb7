"""The reader of call lists against Python's own parser, which is the judge of what a text means."""

import ast
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.tools.literals import MAX_CALLS, MAX_DEPTH, LiteralError, WrittenCall, read_calls
from tests.effort import draws
from tests.tools.adversarial import BOMBS, random_texts

KEYS = st.one_of(st.text(max_size=8), st.integers(-99, 99), st.booleans(), st.none())
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(10**60), 10**60), FLOATS, st.text())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=12,
)


def python_reading(text: str) -> list[WrittenCall]:
    """What Python's parser makes of a call list: the oracle. Raises for what is none."""
    text = text.strip()
    tree = ast.parse(text if text.startswith("[") else f"[{text}]", mode="eval").body
    assert isinstance(tree, ast.List)
    calls = []
    for node in tree.elts:
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Name)
        named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
        calls.append(WrittenCall(node.func.id, tuple(map(ast.literal_eval, node.args)), named))
    return calls


def same(a: object, b: object) -> bool:
    """Equality that tells 1 from True and from 1.0."""
    return repr(a) == repr(b)


@given(VALUES, VALUES)
def test_reads_back_what_repr_writes(positional, named):
    calls = read_calls(f"[f({positional!r}, b={named!r}), g()]")
    assert same(calls, [WrittenCall("f", (positional,), {"b": named}), WrittenCall("g", (), {})])


PIECES = st.sampled_from(
    [*"[](){},:=+-.'\"\\ \n", "f(", "g", "a=", "True", "None", "'x'", '"y"', "12", "1.5", "1e3", "007"]
)


@settings(max_examples=draws(400), deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join))
def test_whatever_is_accepted_means_what_python_says(text):
    try:
        calls = read_calls(text)
    except LiteralError:
        return
    assert same(calls, python_reading(text))


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@pytest.mark.parametrize(
    "text",
    [
        "[f(a=1), g('x', -2.5, [True, (1,), {'a': None}])]",
        "f(1)",
        "f(1), g(a='b')",
        "[\n f(a = 1 ,),\n]",
        "[f('a' \"b\" '''c\nd''')]",
        r"[f('\x41\u00e9\n\t\\\'\"\101\q')]",
        "[f((), (1), (1,), [], {})]",
        "[f(+1, -0, 0, 1., .5, 1e-3)]",
        "[f(a={1: 2, 'b': [3]})]",
        "[setFan(fanSpeed=3)]",
    ],
)
def test_agrees_with_python(text):
    assert same(read_calls(text), python_reading(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[f(x)]", "expected a literal"),
        ("[f(g(1))]", "expected a literal"),
        ("[f.g(1)]", "unexpected '.g"),
        ("[f(1]", "expected ')'"),
        ("[f(1)", "expected ']'"),
        ("[f(1)] or else", "expected the end"),
        ("[f(a=1, 2)]", "positional arguments come first"),
        ("[f(a=1, a=2)]", "given twice"),
        ("[f(007)]", "leading zeros"),
        ("[f(- 'a')]", "expected a number"),
        ("['f'(1)]", "expected the name"),
        ("[f('a\nb')]", "unexpected"),
        ("[f(1) '" + "a" * 1000 + "']", "expected ']', found \"'a"),
        ("[f(1e999)]", "too large"),
        ("[f('\\ud800')]", "surrogate"),
        ("[" + "f()," * (MAX_CALLS + 1) + "]", "more than 64 calls"),
        ("[f(" + "[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2) + ")]", "nested deeper"),
        ("[f(" + "9" * 65 + ")]", "more than 64 characters"),
    ],
)
def test_errors_say_what_was_expected(text, words):
    with pytest.raises(LiteralError, match=re.escape(words)) as caught:
        read_calls(text)
    assert len(str(caught.value)) < 120


def test_raises_nothing_but_its_own_error():
    for text in (*BOMBS, *random_texts(1500, seed=0)):
        try:
            read_calls(text)
        except LiteralError as error:
            assert len(str(error)) < 300  # noqa: PT017
