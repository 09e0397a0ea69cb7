"""Which templates are accepted, which are refused and why, and what stands in for them."""

import datetime

import jinja2
import pytest

from rlagents.data.tokenizers import COMPACT_CHAT_TEMPLATE
from rlagents.rollouts.append_only import CALL, PROBES, QUESTION, SYSTEM, THOUGHT, TOOLS, RewritingTemplateError
from rlagents.rollouts.chat import Chat, training_template
from rlagents.rollouts.conversation import Conversation
from rlagents.rollouts.templates import LLAMA31, QWEN3
from tests.rollouts.tiny import CHATML, FORGETS_THOUGHTS, INJECTS_THOUGHTS, real_tokenizer, tokenizer

NO_THINKING = {"enable_thinking": False}


@pytest.mark.parametrize(
    ("template", "closing"),
    [(CHATML, "<|im_end|>\n"), (QWEN3, "<|im_end|>\n"), (LLAMA31, "<|eot_id|>"), (COMPACT_CHAT_TEMPLATE, "<|end|>")],
)
def test_append_only_templates_are_accepted_and_their_closing_found(template, closing):
    for arguments in ({}, NO_THINKING):
        chat = Chat(tokenizer(), template, template_arguments=arguments)
        assert chat.closing == closing
        assert chat.decode(chat.closing_ids) == closing


def test_stop_tokens_are_the_closing_s_and_the_end_of_text():
    names = {token: tokenizer().convert_tokens_to_ids(token) for token in ("<|im_end|>", "<|eot_id|>", "<|endoftext|>")}
    assert Chat(tokenizer(), CHATML).stop_token_ids == {names["<|im_end|>"], names["<|endoftext|>"]}
    assert Chat(tokenizer(), LLAMA31).stop_token_ids == {names["<|eot_id|>"], names["<|endoftext|>"]}
    # Here a turn is closed with plain text, whose first token (a line break) must not stop the model.
    plain = CHATML.replace("<|im_end|>\n", "\nEND\n")
    assert Chat(tokenizer(), plain).stop_token_ids == {names["<|endoftext|>"]}


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (FORGETS_THOUGHTS, [r"message 1 \(assistant\)", "<think>"]),
        (INJECTS_THOUGHTS, [r"message 1 \(assistant\)", "<think>"]),
        # The generation prompt is there whether asked for or not.
        (CHATML.replace("{% if add_generation_prompt %}", "{% if true %}"), ["the last from 'user'"]),
        # Only the last message is closed in full.
        (CHATML.replace("<|im_end|>\n{%", "<|im_end|>{{ '\n' if loop.last }}{%"), ["rewrites history"]),
        # The number of messages stands in the first line.
        ("{{ messages | length }}" + CHATML, [r"message 0 \(user\)"]),
        # The end of text follows the last answer.
        (CHATML + "{% if not add_generation_prompt %}<|endoftext|>{% endif %}", ["what follows|message"]),
        # What the assistant wrote is always changed.
        (
            CHATML.replace(
                "{{ message.content", "{{ message.content | upper if message.role == 'assistant' else message.content"
            ),
            [r"message 1 \(assistant\) reads", "IT IS 4"],
        ),
        # A user's second question wipes the first.
        ("{% set messages = messages[-2:] %}" + CHATML, [r"message 0 \(user\)"]),
    ],
)
def test_templates_that_rewrite_history_are_refused_with_the_reason(template, says):
    with pytest.raises(RewritingTemplateError, match="rewrites history") as error:
        Chat(tokenizer(), template)
    for text in says:
        assert error.match(text)


@pytest.mark.parametrize("condition", ["message.content.endswith('6.')", "tools"])
def test_two_ways_of_closing_a_turn_are_refused(condition):
    template = CHATML.replace("<|im_end|>\n{%", f"{{{{ '<|eot_id|>' if {condition} else '<|im_end|>\n' }}}}{{%")
    with pytest.raises(RewritingTemplateError, match="more than one way"):
        Chat(tokenizer(), template)


@pytest.mark.parametrize("template", [None, ""])
def test_no_template_is_refused_with_what_to_pass(template):
    with pytest.raises(
        ValueError, match=r"has no chat template of its own\. Pass one of rlagents\.rollouts\.templates"
    ):
        Chat(tokenizer(""), template)
    with pytest.raises(
        ValueError, match=r"expected the text of a Jinja.*template\. Pass training_template\(tokenizer\)"
    ):
        Chat(tokenizer(CHATML), template)


def test_a_broken_template_says_so():
    with pytest.raises(jinja2.TemplateSyntaxError):
        Chat(tokenizer(), "{% for message in %}")


def test_roles_a_template_refuses_are_not_held_against_it():
    template = (
        "{% for m in messages %}{% if m.role in ('system', 'tool') %}{{ raise_exception('no') }}{% endif %}{% endfor %}"
    )
    assert Chat(tokenizer(), template + CHATML).closing == "<|im_end|>\n"


def test_a_tokenizer_that_cannot_tokenise_pieces_is_refused():
    class Prefixing:
        chat_template, eos_token_id = CHATML, None

        def __getattr__(self, name):
            return getattr(tokenizer(), name)

        def encode(self, text, **keywords):
            return tokenizer().encode(" " + text, **keywords)

    with pytest.raises(ValueError, match="pieces of a conversation"):
        Chat(Prefixing(), CHATML)


@pytest.mark.parametrize("template", [FORGETS_THOUGHTS, INJECTS_THOUGHTS])
def test_a_stand_in_is_found_by_how_a_template_behaves(template):
    assert training_template(tokenizer(template)) == QWEN3
    assert training_template(tokenizer(template), template_arguments=NO_THINKING) == QWEN3


def test_an_append_only_template_needs_no_stand_in():
    assert training_template(tokenizer(CHATML)) == CHATML


def test_an_unknown_template_that_rewrites_is_refused_with_what_was_tried():
    unknown = FORGETS_THOUGHTS.replace("<|im_start|>user", "<|im_start|>human").replace("# Tools", "## Tools")
    with pytest.raises(RewritingTemplateError, match=r"rewrites history.*Qwen3: .*## Tools.*Llama 3\.1: "):
        training_template(tokenizer(unknown))
    with pytest.raises(ValueError, match="no chat template"):
        training_template(tokenizer(""))


def test_the_date_is_pinned_whether_a_template_asks_for_a_variable_or_for_the_clock():
    for stamp in ("{{ date_string }}", "{{ strftime_now('%d %b %Y') }}"):
        chat = Chat(tokenizer(), stamp + CHATML)
        assert chat.open([QUESTION]).startswith("26 Jul 2024<|im_start|>")
        chat = Chat(tokenizer(), stamp + CHATML, pinned_date=datetime.date(2030, 1, 2))
        assert chat.open([QUESTION]).startswith("02 Jan 2030<|im_start|>")
    chat = Chat(tokenizer(), "\n{% set day = strftime_now('%Y-%m-%d') %}{{ day }}" + CHATML)
    assert chat.open([QUESTION]).startswith("\n2024-07-26<|im_start|>")
    # Not pinned, the very same template follows the clock.
    today = datetime.datetime.now().strftime("%Y")
    assert render(tokenizer(), "{{ strftime_now('%Y') }}" + CHATML, [QUESTION]).startswith(today)


def test_tool_schemas_that_a_template_leaves_out_are_refused():
    with pytest.raises(ValueError, match="leaves out the tool schemas"):
        Conversation(Chat(tokenizer(), CHATML), [QUESTION], TOOLS)
    assert '"name": "add"' in Chat(tokenizer(), QWEN3).open([QUESTION], TOOLS)


@pytest.mark.parametrize("messages", [[], [{"role": "user", "content": None}], [{"role": "user", "content": [1]}]])
def test_openings_that_are_no_text_are_refused(messages):
    with pytest.raises(ValueError, match=r"at least one message|expected str|not str"):
        Chat(tokenizer(), CHATML).open(messages)


def render(tokenizer, template, messages, tools=None, **keywords):
    return tokenizer.apply_chat_template(messages, tools=tools, chat_template=template, tokenize=False, **keywords)


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["bare", "tools"])
@pytest.mark.parametrize("opening", [[QUESTION], [SYSTEM, QUESTION]], ids=["user", "system"])
def test_qwen3_stand_in_equals_the_official_render_of_a_single_turn(opening, tools):
    official = real_tokenizer("qwen3")
    tools = None if tools is None else list(tools)
    for arguments, text in (({}, THOUGHT), (NO_THINKING, "It is 4.")):
        for messages, generate in ((opening, True), ([*opening, {"role": "assistant", "content": text}], False)):
            keywords = {"tools": tools, "add_generation_prompt": generate, **arguments}
            expected = render(official, official.chat_template, messages, **keywords)
            assert render(official, QWEN3, messages, **keywords) == expected
    # Structured messages in the opening (examples for the model) render alike, too.
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
    said = {"role": "assistant", "content": "Adding.", "reasoning_content": "Hm.", "tool_calls": [call, call]}
    messages = [*opening, said, {"role": "tool", "content": "four"}, {"role": "tool", "content": "4 & more"}]
    keywords = {"tools": tools, "add_generation_prompt": True}
    assert render(official, QWEN3, messages, **keywords) == render(
        official, official.chat_template, messages, **keywords
    )


def test_the_official_qwen3_template_is_refused_and_replaced():
    official = real_tokenizer("qwen3")
    for arguments in ({}, NO_THINKING):
        with pytest.raises(RewritingTemplateError, match=r"message 1 \(assistant\)"):
            Chat(official, official.chat_template, template_arguments=arguments)
        assert training_template(official, template_arguments=arguments) == QWEN3


def test_the_official_qwen25_template_is_append_only():
    official = real_tokenizer("qwen2_5")
    assert training_template(official) == official.chat_template
    assert Chat(official, official.chat_template).closing == "<|im_end|>\n"


LLAMA_SYSTEM = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{environment}"
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n{system}<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n"
)
LLAMA_TOOLS = """\
Given the following functions, please respond with a JSON for a function call with its proper arguments that best \
answers the given prompt.

Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.\
Do not use variables.

{
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add.",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {
                    "type": "integer"
                }
            }
        }
    }
}

"""


def test_llama_stand_in_writes_what_the_official_template_writes():
    # What the model card's template renders, written out.
    ask = "What is 2 + 2?<|eot_id|>"
    assistant = "<|start_header_id|>assistant<|end_header_id|>\n\n"
    chat = Chat(tokenizer(), LLAMA31)
    assert chat.open([QUESTION]) == LLAMA_SYSTEM.format(environment="", system="") + ask + assistant
    opened = chat.open([SYSTEM, QUESTION])
    assert opened == LLAMA_SYSTEM.format(environment="", system="Probe the template.") + ask + assistant
    opened = chat.open([SYSTEM, QUESTION], TOOLS)
    header = LLAMA_SYSTEM.format(environment="Environment: ipython\n", system="Probe the template.")
    assert opened == header + LLAMA_TOOLS + ask + assistant
    messages = [QUESTION, {"role": "assistant", "content": CALL}, {"role": "tool", "content": 'say "4"'}]
    ipython = '<|start_header_id|>ipython<|end_header_id|>\n\n"say \\"4\\""<|eot_id|>'
    assert chat.render(messages, None, True) == chat.open([QUESTION]) + CALL + "<|eot_id|>" + ipython + assistant


def test_llama_stand_in_tokenises_with_the_real_tokenizer():
    official = real_tokenizer("llama3_1")
    chat = Chat(official, LLAMA31)
    ids = chat.encode(chat.open([QUESTION]))
    assert ids[0] == official.bos_token_id
    assert official.bos_token_id not in ids[1:]
    assert chat.closing_ids == [official.convert_tokens_to_ids("<|eot_id|>")]


def test_probes_have_names_of_their_own():
    assert len({probe.name for probe in PROBES}) == len(PROBES)
