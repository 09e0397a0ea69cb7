"""Stop strings on the host: the rule does not depend on blocks, and text is decoded a bounded number of times."""

import hypothesis.strategies as st
from hypothesis import given

from rlagents.sampling.stops import StopStrings, first_stop
from tests.sampling.support import letters

PIECES = ["a", "b", "ab", "ba", "", "é", " a"]


def pieces(token_ids):
    """Drops a leading space, as some decoders do."""
    return "".join(PIECES[token] for token in token_ids).removeprefix(" ")


def raw_bytes(token_ids):
    """A byte a token: characters of several bytes are complete only at their last."""
    return bytes("aé€b".encode()[token] for token in token_ids).decode(errors="replace")


def by_the_rule(decode_text, stops, token_ids):
    lengths = range(1, len(token_ids) + 1)
    return next((k for k in lengths if first_stop(decode_text(token_ids[:k]), stops) is not None), None)


def watched(decode_text, stops, token_ids, blocks):
    """Length kept, looking only at the ends of blocks."""
    watch, seen, blocks = StopStrings(decode_text, stops), 0, iter(blocks)
    while seen < len(token_ids):
        seen += next(blocks, 1)
        kept = watch.length(token_ids[:seen])
        if kept is not None:
            return kept
    return None


blocks = st.lists(st.integers(1, 9), max_size=20)


@given(
    st.lists(st.integers(0, len(PIECES) - 1), max_size=30),
    st.lists(st.sampled_from(["b a", " a", "a a", "aab", "bé", "éa", "bbab"]), max_size=3),
    blocks,
)
def test_found_where_the_rule_says_whatever_the_blocks(token_ids, stops, blocks):
    expected = by_the_rule(pieces, stops, token_ids)
    assert watched(pieces, stops, token_ids, blocks) == expected


@given(
    st.lists(st.sampled_from([[0], [1, 2], [3, 4, 5], [6]]), max_size=15),
    st.lists(st.text("aé€b", min_size=1, max_size=4), max_size=3),
    blocks,
)
def test_characters_of_several_bytes_may_straddle_blocks(characters, stops, blocks):
    token_ids = [byte for character in characters for byte in character]
    assert watched(raw_bytes, stops, token_ids, blocks) == by_the_rule(raw_bytes, stops, token_ids)


def test_the_earliest_stop_counts():
    assert first_stop("abcabd", ["bd", "ca"]) == 2
    assert first_stop("abc", ["bd", "xx"]) is None


def test_each_token_is_decoded_a_bounded_number_of_times():
    decoded = 0

    def counting(token_ids):
        nonlocal decoded
        decoded += len(token_ids)
        return letters(token_ids)

    watch = StopStrings(counting, ["zz"])
    for length in range(8, 4001, 8):
        assert watch.length([i % 25 for i in range(length)]) is None
    assert decoded <= 4 * 4000
