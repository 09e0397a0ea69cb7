"""The word tokenizer loses nothing and gives whole words one token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from rlagents.data.tokenizers import END_TOKEN, word_tokenizer
from rlagents.rollouts.chat import Chat

TEXTS = ["move 'report' to 'archive'", "mv(source='report', destination='archive')", "12 files"]
TOKENIZER = word_tokenizer(TEXTS, max_words=50)


@given(st.text())
def test_decoding_gives_back_any_text(text: str):
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    assert TOKENIZER.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False) == text


def test_a_value_is_one_and_the_same_token_wherever_it_is_quoted():
    said, called = (TOKENIZER.convert_ids_to_tokens(TOKENIZER.encode(text)) for text in TEXTS[:2])
    assert said.count("report") == called.count("report") == 1


def test_digits_go_in_pairs_and_an_unknown_pair_is_two_bytes():
    assert TOKENIZER.convert_ids_to_tokens(TOKENIZER.encode("123")) == ["12", "3"]
    assert TOKENIZER.convert_ids_to_tokens(TOKENIZER.encode("9812")) == ["9", "8", "12"]


def test_a_special_token_is_one_token_and_an_unknown_word_is_spelled():
    assert len(TOKENIZER.encode(END_TOKEN)) == 1
    assert len(TOKENIZER.encode("zebra")) == len("zebra")


def test_the_order_of_texts_does_not_matter():
    again = word_tokenizer(TEXTS[::-1], max_words=50)
    assert again.get_vocab() == TOKENIZER.get_vocab()


def test_it_survives_saving(tmp_path):
    TOKENIZER.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.encode(TEXTS[0]) == TOKENIZER.encode(TEXTS[0])
    assert loaded.chat_template == TOKENIZER.chat_template


def test_its_template_is_append_only_and_its_end_token_ends_a_turn():
    chat = Chat(TOKENIZER, TOKENIZER.chat_template)
    assert chat.stop_token_ids == {TOKENIZER.convert_tokens_to_ids(END_TOKEN)}


def test_negative_sizes_are_refused():
    with pytest.raises(ValueError, match="max_words is -1"):
        word_tokenizer(TEXTS, max_words=-1)
