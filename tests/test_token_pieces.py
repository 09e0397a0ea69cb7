"""Pieces of text join to the decoded text, whatever the tokens do to characters."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.token_pieces import TokenPieces
from tests.effort import draws
from tests.rollouts.tiny import tokenizer

WRAPPED = tokenizer()
VOCABULARY = len(WRAPPED)


def decode(ids):
    return WRAPPED.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)


PIECES = TokenPieces(decode)


@given(ids=st.lists(st.integers(0, VOCABULARY - 1), max_size=40))
@settings(max_examples=draws(150), deadline=None)
def test_pieces_of_any_tokens_join_to_their_text(ids):
    pieces = PIECES(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == decode(ids)


@given(text=st.text(max_size=12))
@settings(max_examples=draws(100), deadline=None)
def test_pieces_of_a_text_join_to_it_and_none_holds_half_a_character(text):
    pieces = PIECES(WRAPPED.encode(text, add_special_tokens=False))
    assert "".join(pieces) == text
    assert "\N{REPLACEMENT CHARACTER}" in text or not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)


def test_a_character_of_several_tokens_belongs_to_the_last():
    ids = WRAPPED.encode("a\N{PARTY POPPER}b", add_special_tokens=False)
    assert len(ids) == 6
    assert PIECES(ids) == ["a", "", "", "", "\N{PARTY POPPER}", "b"]


def test_special_tokens_are_pieces_of_their_own():
    ids = WRAPPED.encode("<|im_start|>user\nadd<|im_end|>", add_special_tokens=False)
    pieces = PIECES(ids)
    assert (pieces[0], pieces[-1]) == ("<|im_start|>", "<|im_end|>")


@pytest.mark.parametrize("words", [["▁a", "▁b", "c", "▁d"], ["▁x"], []])
def test_a_tokenizer_that_drops_the_first_space_is_followed(words):
    def strips(ids):
        return "".join(words[token] for token in ids).replace("▁", " ").removeprefix(" ")

    ids = list(range(len(words)))
    assert "".join(TokenPieces(strips)(ids)) == strips(ids)


@given(ids=st.lists(st.integers(0, 3), max_size=8), text=st.randoms(use_true_random=False))
@settings(max_examples=draws(100), deadline=None)
def test_pieces_join_to_the_text_however_it_comes_from_the_tokens(ids, text):
    """Here any tokens may spell anything, and what some spell is no part of what they spell with another."""
    spelt = {}

    def decode(ids):
        return spelt.setdefault(tuple(ids), "".join(text.choices("ab", k=len(ids))))

    pieces = TokenPieces(decode)(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == (decode(ids) if ids else "")


def test_a_token_is_decoded_alone_once():
    calls = []

    def counted(ids):
        calls.append(tuple(ids))
        return decode(ids)

    pieces, ids = TokenPieces(counted), WRAPPED.encode("add 12 add 12", add_special_tokens=False)
    pieces(ids)
    pieces(ids)
    assert max(calls.count((token,)) for token in ids) == 1
