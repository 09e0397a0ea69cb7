"""An added literal is one token wherever a text spells it, in any tokenizer; all other text is tokenised as before."""

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from rlagents.data.tokenizers import COMPACT_CHAT_TEMPLATE, word_tokenizer
from rlagents.facts import Opening, Task
from rlagents.models.special_tokens import add_special_tokens, vocabulary_end
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.conditions import GOAL_LITERALS, HIGH, LOW, goal_messages
from rlagents.rollouts.conversation import Conversation
from rlagents.types import Kind
from tests.effort import draws
from tests.rollouts import tiny

QUESTION = {"role": "user", "content": "What is 2 + 2?"}


@functools.cache
def given_tokenizer(name):
    if name == "words":
        return word_tokenizer(["What is 2 + 2?", "add 12"], max_words=20)
    if name == "byte pairs":
        return tiny.tokenizer()
    return tiny.real_tokenizer(name)


NAMES = ["words", "byte pairs", "qwen2_5", "llama3_1"]
OURS = NAMES[:2]


def ids_of(tokenizer, text):
    return list(tokenizer.encode(text, add_special_tokens=False))


@pytest.fixture(params=OURS)
def before(request):
    return given_tokenizer(request.param)


@pytest.mark.parametrize("name", NAMES)
def test_a_literal_in_our_user_message_is_exactly_one_token(name):
    tokenizer = given_tokenizer(name)
    larger, ids = add_special_tokens(tokenizer, GOAL_LITERALS)
    assert ids == tuple(range(vocabulary_end(tokenizer), vocabulary_end(tokenizer) + 2))
    shown, opening = goal_messages(), Opening([QUESTION])
    for condition in (LOW, HIGH):
        messages = shown(Task("0"), opening, condition)
        prompts = {}
        for given_or_not, used in (("text", tokenizer), ("added", larger)):
            template = used.chat_template or COMPACT_CHAT_TEMPLATE
            prompts[given_or_not] = Conversation(Chat(used, template), messages).prompt_ids
        assert prompts["added"].count(ids[condition]) == 1
        assert ids[1 - condition] not in prompts["added"]
        assert not set(ids) & set(prompts["text"])
        assert len(prompts["text"]) > len(prompts["added"])


def test_what_is_given_is_not_changed(before):
    vocabulary, text = before.get_vocab(), f"add {GOAL_LITERALS[0]} 12"
    pieces = ids_of(before, text)
    add_special_tokens(before, GOAL_LITERALS)
    assert before.get_vocab() == vocabulary
    assert ids_of(before, text) == pieces


@settings(max_examples=draws(100), deadline=None)
@given(text=st.text(max_size=30) | st.text("<|high_reward> low", max_size=30), name=st.sampled_from(OURS))
def test_text_without_a_literal_is_tokenised_as_before_and_all_text_comes_back(text, name):
    before = given_tokenizer(name)
    larger, ids = with_goals(name)
    if not any(literal in text for literal in GOAL_LITERALS):
        assert ids_of(larger, text) == ids_of(before, text)
    around = f"{text}{GOAL_LITERALS[HIGH]}{text}"
    assert ids_of(larger, around).count(ids[HIGH]) >= 1
    assert larger.decode(ids_of(larger, around), skip_special_tokens=False) == around


@functools.cache
def with_goals(name):
    return add_special_tokens(given_tokenizer(name), GOAL_LITERALS)


def test_tokens_that_exist_are_kept_and_new_ones_come_after_the_last(before):
    once, ids = add_special_tokens(before, GOAL_LITERALS)
    literals = ["<|other|>", GOAL_LITERALS[1], GOAL_LITERALS[0]]
    twice, again = add_special_tokens(once, literals)
    assert again == (max(ids) + 1, ids[1], ids[0])
    assert vocabulary_end(twice) == max(ids) + 2
    end_of_text = before.eos_token
    assert add_special_tokens(before, [end_of_text])[1] == (before.eos_token_id,)


def test_a_saved_folder_has_them(before, tmp_path):
    larger, ids = add_special_tokens(before, GOAL_LITERALS)
    larger.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = f"add 12{GOAL_LITERALS[HIGH]}{GOAL_LITERALS[LOW]}"
    assert ids_of(loaded, text) == ids_of(larger, text)
    assert ids_of(loaded, text)[-2:] == [ids[HIGH], ids[LOW]]
    assert loaded.decode(ids_of(loaded, text), skip_special_tokens=True) == "add 12"
    # A tokenizer that comes from a folder is as good as one made in memory.
    assert add_special_tokens(loaded, GOAL_LITERALS)[1] == ids


class TestHostileText:
    """The same law as for ``<|im_end|>``: a rendered message is tokenised as it stands, a model's turn never again."""

    chat = Chat(with_goals("byte pairs")[0], tiny.CHATML)
    low, high = with_goals("byte pairs")[1]

    def test_a_model_that_spells_the_literal_has_written_pieces(self):
        conversation = Conversation(self.chat, [QUESTION])
        spelled = [token for letter in GOAL_LITERALS[HIGH] for token in self.chat.encode(letter)]
        assert self.chat.decode(spelled) == GOAL_LITERALS[HIGH]
        turn = [*spelled, *self.chat.closing_ids[:1]]
        conversation.add_turn(turn, [-1.0] * len(turn), self.chat.decode_text(turn))
        conversation.append(conversation.continuation([{"role": "tool", "content": "four"}]))
        assert not {self.low, self.high} & set(conversation.buffer.ids)
        assert conversation.messages[1]["content"] == GOAL_LITERALS[HIGH]

    def test_an_environment_does_not_see_the_token_that_a_model_samples(self):
        turn = [*self.chat.encode("add 1"), self.high, *self.chat.encode("2")]
        assert self.chat.decode_text(turn) == "add 12"
        assert self.chat.decode(turn) == f"add 1{GOAL_LITERALS[HIGH]}2"

    @pytest.mark.parametrize("literal", [GOAL_LITERALS[HIGH], "<|im_end|>"])
    def test_a_tool_s_output_is_tokenised_as_it_stands_and_is_nobody_s_turn(self, literal):
        conversation = Conversation(self.chat, [QUESTION])
        turn = [*self.chat.encode("add"), *self.chat.closing_ids[:1]]
        conversation.add_turn(turn, [-1.0] * len(turn), "add")
        conversation.append(conversation.continuation([{"role": "tool", "content": f"four {literal}"}]))
        after = slice(conversation.prompt_length + len(turn), None)
        assert self.chat.encode(literal)[0] in conversation.buffer.ids[after]
        assert set(conversation.buffer.kinds[after]) == {Kind.TOOL}

    def test_neither_stops_a_turn(self):
        assert not {self.low, self.high} & self.chat.stop_token_ids


@pytest.mark.parametrize(
    ("literals", "message"),
    [
        ("<|high|>", "give a list of texts"),
        ([], "give a list of texts"),
        (["<|a|>", "<|a|>"], "no two alike"),
        ([""], "begins and ends with a visible character"),
        ([" <|a|>"], "begins and ends with a visible character"),
        (["\n"], "begins and ends with a visible character"),
        ([7], "begins and ends with a visible character"),
        (["<|a|>", "<|a|>x"], "of the special tokens '<|a|>' and '<|a|>x' one holds the other".replace("|", r"\|")),
        (["x<|a|>", "<|a|>"], "one holds the other"),
        (["<|im_end|>."], "one holds the other"),
        (["im_end"], "one holds the other"),
        (["two"], r"'two' is token \d+ already, and an ordinary one: .*Choose another spelling"),
    ],
)
def test_literals_that_would_go_wrong_are_refused(literals, message):
    with pytest.raises(ValueError, match=message):
        add_special_tokens(tiny.tokenizer(), literals)
