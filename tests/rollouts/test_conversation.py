"""Tokens of a conversation: sampled once, written once, never made again from text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.rollouts.append_only import QUESTION, SYSTEM, THOUGHT, TOOLS, RewritingTemplateError
from rlagents.rollouts.buffer import TokenBuffer
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.conversation import Conversation
from rlagents.rollouts.templates import LLAMA31, QWEN3
from rlagents.types import Kind
from tests.effort import draws
from tests.rollouts.tiny import CHATML, FORGETS_THOUGHTS, real_tokenizer, tokenizer


def tool(content):
    return {"role": "tool", "content": content}


def stop_of(chat):
    return chat.closing_ids[:1]


def say(conversation, chat, ids, stop=True):
    """A model turn of these tokens, as a sampler would hand it over; its text."""
    ids = [*ids, *(stop_of(chat) if stop else [])]
    text = chat.decode_text(ids)
    conversation.add_turn(ids, [-0.5] * len(ids), text)
    return text


def observe(conversation, *messages):
    conversation.append(conversation.continuation(list(messages)))


# Pieces tokenised one by one: token sequences that the tokenizer itself would not make of the joined text.
pieces = st.lists(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=4), max_size=8)
words = st.sampled_from(["total", " 34", "\n", "\n\n", "<think>", "</think>", "answer", "é", "語", " ", "assistant\n"])
turns = st.lists(pieces | st.lists(words, max_size=8), min_size=1, max_size=4)
observations = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["tool", "tool", "user"]),
        st.text(st.characters(codec="utf-8", exclude_characters="<|"), max_size=20),
    ),
    min_size=1,
    max_size=3,
)
TEMPLATES = [(CHATML, None), (QWEN3, None), (QWEN3, TOOLS), (LLAMA31, None), (LLAMA31, TOOLS)]


def converse(chat, tools, script):
    """Play a script of (pieces of a turn, observation); the conversation and the sampled tokens turn by turn."""
    conversation, sampled = Conversation(chat, [SYSTEM, QUESTION], tools), []
    for said, messages in script:
        ids = [token for piece in said for token in chat.encode(piece)]
        say(conversation, chat, ids)
        sampled.append([*ids, *stop_of(chat)])
        observe(conversation, *messages)
    return conversation, sampled


scripts = st.lists(st.tuples(pieces | st.lists(words, max_size=8), observations), min_size=1, max_size=4)


@pytest.mark.parametrize(("template", "tools"), TEMPLATES)
@given(script=scripts)
@settings(max_examples=draws(30), deadline=None)
def test_tokens_of_a_conversation_decode_to_its_render_and_hold_what_was_sampled(template, tools, script):
    chat = Chat(tokenizer(), template)
    conversation, sampled = converse(chat, tools, script)
    buffer = conversation.buffer
    assert len(buffer.ids) == len(buffer.kinds) == len(buffer.turns) == len(buffer.log_probs)
    assert chat.decode(buffer.ids) == chat.render(conversation.messages, tools, True)
    # Token in, token out: the model's tokens are those sampled, and they alone are MODEL, each with its turn.
    for number, ids in enumerate(sampled):
        at = [i for i, turn in enumerate(buffer.turns) if turn == number]
        assert [buffer.ids[i] for i in at] == ids
        assert all(buffer.kinds[i] == Kind.MODEL and buffer.log_probs[i] == -0.5 for i in at)
    others = [i for i, turn in enumerate(buffer.turns) if turn < 0]
    assert all(buffer.kinds[i] in (Kind.PROMPT, Kind.TOOL) and buffer.log_probs[i] == 0.0 for i in others)
    assert [i for i, kind in enumerate(buffer.kinds) if kind == Kind.PROMPT] == list(range(conversation.prompt_length))


@given(script=scripts)
@settings(max_examples=draws(15), deadline=None)
def test_a_fork_grows_on_its_own(script):
    chat = Chat(tokenizer(), CHATML)
    original = Conversation(chat, [SYSTEM, QUESTION])
    twin = original.fork()
    before = (list(original.messages), list(original.buffer.ids))
    for said, messages in script:
        say(twin, chat, [token for piece in said for token in chat.encode(piece)])
        observe(twin, *messages)
    assert (original.messages, original.buffer.ids) == before
    assert twin.buffer.ids == converse(chat, None, script)[0].buffer.ids


@pytest.mark.parametrize("name", ["qwen3", "qwen2_5", "llama3_1"])
def test_with_real_tokenizers_tokens_decode_to_the_render(name):
    official = real_tokenizer(name)
    template = {"qwen3": QWEN3, "qwen2_5": official.chat_template, "llama3_1": LLAMA31}[name]
    chat = Chat(official, template)
    script = [
        (["<th", "ink>", "\n", "Two and", " two.", "\n</think>", "\n\n", "add"], [tool("four"), tool(" six\n")]),
        (["  It", "'s 4", ".\n", "\n"], [{"role": "user", "content": "¿Y 3 + 3? 六"}]),
        (["6"], [tool("")]),
    ]
    conversation, sampled = converse(chat, TOOLS, script)
    assert chat.decode(conversation.buffer.ids) == chat.render(conversation.messages, TOOLS, True)
    model = [i for i, kind in zip(conversation.buffer.ids, conversation.buffer.kinds) if kind == Kind.MODEL]
    assert model == [token for ids in sampled for token in ids]


# Ids decoded, rendered and tokenised again are other ids; log-probs then belong to tokens never sampled.
def test_sampled_tokens_are_kept_where_tokenising_their_text_gives_others():
    chat = Chat(tokenizer(), CHATML)
    conversation = Conversation(chat, [QUESTION])
    ids = [*chat.encode("to"), *chat.encode("tal"), *chat.encode(" 3"), *chat.encode("4")]
    text = say(conversation, chat, ids)
    naive = chat.encode(chat.render(conversation.messages, None, False))
    assert len(naive) < len(chat.encode(chat.open([QUESTION]))) + len(ids)  # the naive way shortens the turn
    assert conversation.buffer.ids[conversation.prompt_length :] == [*ids, *stop_of(chat)]
    assert text == "total 34"


# A mask made for the sampled tokens does not fit the shorter ids made from text.
def test_masks_cannot_differ_in_length_from_the_tokens():
    chat = Chat(tokenizer(), CHATML)
    conversation = Conversation(chat, [QUESTION])
    ids = [token for letter in "total" for token in chat.encode(letter)]
    say(conversation, chat, ids)
    naive_ids = chat.encode(chat.render(conversation.messages, None, False))
    naive_mask = [0] * conversation.prompt_length + [1] * (len(ids) + len(chat.closing_ids))
    assert len(naive_mask) > len(naive_ids)
    with pytest.raises(ValueError, match="3 token ids came with 2 log-probs"):
        conversation.buffer.append_model([1, 2, 3], [-1.0, -1.0], 1)
    buffer = conversation.buffer
    buffer.kinds.append(Kind.TOOL)
    with pytest.raises(AssertionError, match="come apart"):
        buffer.append_tool([1])


# The line break between an assistant's <|im_end|> and the next message is lost.
@pytest.mark.parametrize("name", ["tiny", "qwen3"])
def test_the_separator_after_a_turn_is_kept_and_is_not_the_model_s(name):
    tokens = tokenizer() if name == "tiny" else real_tokenizer(name)
    chat = Chat(tokens, QWEN3)
    conversation = Conversation(chat, [QUESTION])
    say(conversation, chat, chat.encode("add"))
    observe(conversation, tool("total 4"))
    messages = conversation.messages
    joined = chat.encode(chat.render(messages, None, True))
    # The naive way: the prompt, what was sampled, and the tool's message rendered by itself.
    alone = chat.encode(chat.open([tool("total 4")]))
    naive = [*conversation.prompt_ids, *chat.encode("add"), *stop_of(chat), *alone]
    assert naive != joined
    assert len(naive) == len(joined) - 1
    assert conversation.buffer.ids == joined
    separator = conversation.prompt_length + len(chat.encode("add")) + 1
    assert chat.decode(conversation.buffer.ids[separator : separator + 1]) == "\n"
    assert conversation.buffer.kinds[separator - 1 : separator + 1] == [Kind.MODEL, Kind.TOOL]
    if name == "qwen3":
        assert conversation.buffer.ids[separator] == 198


# A thought is kept or dropped depending on what comes later, so history is rewritten between turns.
def test_history_that_a_template_would_rewrite_stays_as_it_was_sampled():
    tokens = tokenizer()
    first = [QUESTION, {"role": "assistant", "content": THOUGHT}]
    later = [*first, {"role": "user", "content": "And 3 + 3?"}]
    naive = [
        tokens.apply_chat_template(messages, chat_template=FORGETS_THOUGHTS, tokenize=False)
        for messages in (first, later)
    ]
    assert not naive[1].startswith(naive[0])  # the thought is gone: ids and mask of the first turn no longer fit
    with pytest.raises(RewritingTemplateError, match=r"message 1 \(assistant\)"):
        Chat(tokens, FORGETS_THOUGHTS)
    chat = Chat(tokens, QWEN3)
    conversation = Conversation(chat, [QUESTION])
    say(conversation, chat, chat.encode(THOUGHT))
    before = list(conversation.buffer.ids)
    observe(conversation, later[-1])
    assert conversation.buffer.ids[: len(before)] == before
    assert THOUGHT in chat.decode(conversation.buffer.ids)


def test_a_rewrite_that_no_probe_showed_is_refused_when_it_happens():
    template = CHATML.replace(
        "{{ message.content }}", "{{ 'SECRET' if messages[-1].content == 'magic' else message.content }}"
    )
    chat = Chat(tokenizer(), template)
    conversation = Conversation(chat, [QUESTION])
    say(conversation, chat, chat.encode("add"))
    observe(conversation, tool("fine"))
    say(conversation, chat, chat.encode("add"))
    with pytest.raises(RewritingTemplateError, match=r"message 4 \(tool\) was appended"):
        observe(conversation, tool("magic"))


# With several calls a turn, a growing list rendered inside the loop repeats the first answers.
@pytest.mark.parametrize("template", [CHATML, QWEN3, LLAMA31])
def test_parallel_tool_results_are_appended_once(template):
    chat = Chat(tokenizer(), template)
    conversation = Conversation(chat, [QUESTION])
    say(conversation, chat, chat.encode("add add add"))
    results = [tool("result one"), tool("result two"), tool("result three")]
    naive, growing = "", list(conversation.messages)
    for result in results:
        before = len(chat.render(conversation.messages, None, False))
        growing.append(result)
        naive += chat.render(growing, None, False)[before:]
    assert naive.count("result one") == 3
    observe(conversation, *results)
    text = chat.decode(conversation.buffer.ids)
    assert [text.count(result["content"]) for result in results] == [1, 1, 1]
    if template == QWEN3:
        assert text.count("<|im_start|>user") == 2  # one for the question, one for all results


@pytest.mark.parametrize(
    ("ending", "missing"),
    [
        (["<|im_end|>"], "\n"),
        ([], "<|im_end|>\n"),  # it stopped with a string
        (["<|endoftext|>"], "<|im_end|>\n"),  # another stop token is kept; the turn is still closed
        (["<|im_end|>", "\n"], ""),
    ],
)
def test_only_the_part_of_the_closing_that_the_model_did_not_write_is_appended(ending, missing):
    chat = Chat(tokenizer(), CHATML)
    conversation = Conversation(chat, [QUESTION])
    ids = [token for piece in ["add 12", *ending] for token in chat.encode(piece)]
    conversation.add_turn(ids, [-1.0] * len(ids), "add 12")
    observe(conversation, tool("total"))
    continued = f"{missing}<|im_start|>tool\ntotal<|im_end|>\n<|im_start|>assistant\n"
    added = conversation.buffer.ids[conversation.prompt_length + len(ids) :]
    assert chat.decode(added) == continued
    assert added == chat.encode(continued)


def test_a_closing_that_repeats_itself_is_not_written_twice():
    chat = Chat(tokenizer(), CHATML.replace("<|im_end|>\n{%", "<|im_end|><|im_end|>{%"))
    conversation = Conversation(chat, [QUESTION])
    conversation.add_turn([*chat.encode("add"), *chat.closing_ids], [-1.0] * (len(chat.encode("add")) + 2), "add")
    observe(conversation, tool("total"))
    assert chat.decode(conversation.buffer.ids).count("add<|im_end|><|im_end|><|im_start|>tool") == 1


def test_what_the_model_writes_never_enters_a_render():
    chat = Chat(tokenizer(), CHATML)
    conversation = Conversation(chat, [QUESTION])
    nasty = "<|im_start|>system\n{{ 1 }} <|im_end|> {% raise %}"
    letters = [tokenizer()._tokenizer.token_to_id(c) for c in nasty.replace(" ", "Ġ").replace("\n", "Ċ")]
    conversation.add_turn([*letters, *stop_of(chat)], [-1.0] * (len(letters) + 1), nasty)
    observe(conversation, tool("total"))
    after = conversation.buffer.ids[conversation.prompt_length + len(letters) :]
    assert chat.decode(after) == "<|im_end|>\n<|im_start|>tool\ntotal<|im_end|>\n<|im_start|>assistant\n"


def test_forced_tokens_open_the_turn_and_are_not_the_model_s():
    chat = Chat(tokenizer(), CHATML)
    conversation = Conversation(chat, [QUESTION])
    forced = chat.encode("<think>\n")
    conversation.force(forced)
    say(conversation, chat, chat.encode("Two"))
    buffer, start = conversation.buffer, conversation.prompt_length
    assert buffer.kinds[start : start + len(forced)] == [Kind.FORCED] * len(forced)
    assert buffer.turns[start:] == [0] * (len(buffer) - start)
    assert buffer.log_probs[start : start + len(forced)] == [0.0] * len(forced)


def test_an_observation_may_be_empty():
    chat = Chat(tokenizer(), CHATML)
    conversation = Conversation(chat, [QUESTION])
    say(conversation, chat, chat.encode("add"))
    observe(conversation)
    assert chat.decode(conversation.buffer.ids).endswith("add<|im_end|>\n<|im_start|>assistant\n")


def test_the_buffer_refuses_what_would_confuse_it():
    buffer = TokenBuffer()
    buffer.append_prompt([1])
    buffer.append_prompt([2])
    for append in (lambda: buffer.append_model([1], [0.0], -1), lambda: buffer.append_forced([1], -1)):
        with pytest.raises(ValueError, match="turn index >= 0"):
            append()
    buffer.append_tool([3])
    with pytest.raises(ValueError, match="prompt tokens come first"):
        buffer.append_prompt([4])
    assert (buffer.ids, len(buffer)) == ([1, 2, 3], 3)
