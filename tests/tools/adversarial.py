"""Texts no one should have to read: for every reader and environment that meets model-written turns."""

import random

# Each would set the variable, or make the file, if any part of it were ever evaluated.
CANARY_VARIABLE = "RLAGENTS_TEST_CANARY"
SIDE_EFFECT = f"__import__('os').environ.__setitem__('{CANARY_VARIABLE}', 'x')"

INJECTIONS = (
    SIDE_EFFECT,
    f"[{SIDE_EFFECT}]",
    f"[cd(folder={SIDE_EFFECT})]",
    f"[cd({SIDE_EFFECT})]",
    f"[cd(folder={SIDE_EFFECT}+0)]",
    f"[cd(folder=1 + {SIDE_EFFECT})]",
    f"[cd(folder=f'{{{SIDE_EFFECT}}}')]",
    f"[cd(folder=(lambda: {SIDE_EFFECT})())]",
    f"[cd(folder=[{SIDE_EFFECT} for x in (1,)])]",
    f"[cd(folder=[1][{SIDE_EFFECT}])]",
    f"[cd(folder={{'a': {SIDE_EFFECT}}})]",
    f"[cd(**{{'folder': {SIDE_EFFECT}}})]",
    f"[cd(*[{SIDE_EFFECT}])]",
    f"[cd(folder=`{SIDE_EFFECT}`)]",
    f'[eval("{SIDE_EFFECT}")]',
    f'[exec("{SIDE_EFFECT}")]',
    f"[(cd)({SIDE_EFFECT})]",
    f"[cd.__call__(folder={SIDE_EFFECT})]",
    f"[cd(folder='x') if {SIDE_EFFECT} else pwd()]",
    f"[x := {SIDE_EFFECT}]",
    f'<tool_call>{{"name": "eval", "arguments": {{"x": "{SIDE_EFFECT}"}}}}</tool_call>',
    f"<tool_call>{SIDE_EFFECT}</tool_call>",
    "[__import__(name='os')]",
    "[_load_scenario(scenario={})]",
    "[__init__()]",
    "[__class__()]",
    "[__setattr__('root', None)]",
    "[cd(self=1, folder='a')]",
)

BOMBS = (
    "",
    " ",
    "\x00",
    "[",
    "]",
    "[]",
    "[[]]",
    "[" * 100_000,
    "[f(" * 50_000,
    "[cd(" + "[" * 50_000 + "]" * 50_000 + ")]",
    "[cd(" + "(" * 5_000 + ")" * 5_000 + ")]",
    "[cd(" + "{1:" * 5_000 + "1" + "}" * 5_000 + ")]",
    "[cd(" + "-" * 30_000 + "1)]",
    "[cd(" + "not " * 8_000 + "1)]",
    "[cd(" + "lambda:" * 4_000 + "1)]",
    "[cd(" + "a." * 15_000 + "b)]",
    "[cd(" + "1+" * 15_000 + "1)]",
    "[cd(folder=" + "9" * 30_000 + ")]",
    "[cd(folder=1e" + "9" * 30 + ")]",
    "[cd(folder=1e999)]",
    "[cd(folder='" + "a" * 1_000_000 + "')]",
    "[cd(folder='" + "\\'" * 15_000,
    "[cd(folder='''" + "'" * 10_000,
    "[" + "pwd()," * 5_000 + "]",
    "[cd(folder='\ud800')]",
    "[cd(folder='\\ud800')]",
    "[cd(folder='\\U00110000')]",
    "[cd(folder='\\N{BULLET}')]",
    "[cd(folder='\x00')]",
    "[cd(folder='\\x00')]",
    "[cd(folder='a', folder='b')]",
    "[cd('a', folder='b')]",
    "[cd('a', 'b', 'c')]",
    "[cd(folder='a' 'b')]",
    "[cd(folder=b'a')]",
    "[cd(folder={1: 2, [1]: 3})]",
    "[cd(folder={(1, 2): 3})]",
    "[cd(folder=...)]",
    "[cd(folder=1j)]",
    "[cd(folder=007)]",
    "[cd(folder=1_000)]",
    "[cd(folder=NaN)]",
    "[cd(folder=None), cd(), ls(a='x'), tail(file_name=None, lines='x')]",
    "cd(folder='a'); pwd()",
    "cd(folder='a')\npwd()",
    "```python\n[pwd()]\n```",
    "<think>[pwd()]</think>done",
    "<think>" * 1_000,
    "</think>" * 1_000,
    "<tool_call>" * 5_000,
    "<tool_call></tool_call>",
    "<tool_call>{</tool_call>",
    "<tool_call>[]</tool_call>",
    "<tool_call>null</tool_call>",
    "<tool_call>" + "[" * 50_000 + "</tool_call>",
    '<tool_call>{"name": "cd", "arguments": ' + '{"a":' * 2_000 + "1" + "}" * 2_000 + "}</tool_call>",
    '<tool_call>{"name": "cd", "arguments": {"folder": ' + "9" * 10_000 + "}}</tool_call>",
    '<tool_call>{"name": "cd", "arguments": {"folder": NaN}}</tool_call>',
    '<tool_call>{"name": "cd", "arguments": {"folder": 1e999}}</tool_call>',
    '<tool_call>{"name": "cd", "arguments": {"folder": "\\ud800"}}</tool_call>',
    '<tool_call>{"name": "cd", "arguments": "folder"}</tool_call>',
    '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
    '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "cd"}</tool_call>' * 200,
    '<tool_call>{"name": "pwd", "arguments": {}}',
)

_PIECES = (*"[](){},:=+-.'\"\\`@#\n\t \x00", "<tool_call>", "</tool_call>", "</think>", '{"name": "cd", "arguments": {')
_WORDS = (
    "cd",
    "pwd",
    "echo",
    "find",
    "True",
    "None",
    "folder",
    "lambda",
    "not",
    "f'",
    "r'",
    "'''",
    "1e9",
    "0x1",
    "é",
    "𝕏",
)


def random_texts(count: int, seed: int) -> list[str]:
    """Texts of up to 30 pieces of calls, quotes, numbers and rubbish."""
    source = random.Random(seed)
    texts = []
    for _ in range(count):
        pieces = source.choices((*_PIECES, *_WORDS, str(source.randrange(10**9))), k=source.randrange(1, 30))
        texts.append("[cd(" * source.randrange(2) + "".join(pieces) + ")]" * source.randrange(2))
    return texts
