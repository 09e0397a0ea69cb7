"""Answers against golds as SQuAD compares them, and word-level edit similarity, against plain loops."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.environments.answers import exact_match, f1, normalize
from rlagents.environments.edit_similarity import MAX_WORDS, edit_similarity
from tests.effort import draws
from tests.oracles import answers as oracle
from tests.oracles import silver_documents as silver_oracle

words = st.sampled_from(["The", "a", "an", "cat", "Cat,", "1.5", "U.S.", "the-end", "ça", "_a_", "a–b", "“the”", "?"])
texts = st.one_of(st.lists(words, max_size=6).map(" ".join), st.text(max_size=8))
few = settings(max_examples=draws(60), deadline=None)


@given(answer=texts, golds=st.lists(texts, min_size=1, max_size=3))
@few
def test_f1_is_the_best_over_the_golds(answer, golds):
    assert normalize(answer).split() == oracle.words(answer)
    value = f1(answer, golds)
    assert value == pytest.approx(max(oracle.f1(answer, gold) for gold in golds), abs=1e-12)
    assert 0 <= exact_match(answer, golds) <= value <= 1
    assert exact_match(answer, golds) == any(oracle.words(answer) == oracle.words(gold) for gold in golds)
    assert f1(answer, [golds[0]]) == f1(golds[0], [answer])


@pytest.mark.parametrize(
    ("answer", "gold", "expected"),
    [
        ("the  U.S.", "US", 1.0),
        ("Barack Obama", "President Barack Obama", 0.8),
        ("cat cat cat", "cat", 0.5),
        ("Paris", "London", 0.0),
        ("", "Paris", 0.0),
        # No words on either side are equal, as in version 2.0 of the script.
        ("the", "?", 1.0),
    ],
)
def test_f1_of_known_answers(answer, gold, expected):
    assert f1(answer, [gold]) == pytest.approx(expected, abs=1e-12)
    assert exact_match(answer, [gold]) == (expected == 1.0)


@pytest.mark.parametrize("golds", ["Paris", [], [b"Paris"], [None]])
def test_golds_that_are_no_list_of_strings_are_refused(golds):
    for compare in (f1, exact_match):
        with pytest.raises(ValueError, match="expected a sequence of at least one string"):
            compare("Paris", golds)


thoughts = st.lists(st.sampled_from("abc"), max_size=8).map(" ".join)


@given(one=thoughts, other=thoughts, limit=st.integers(1, 9))
@few
def test_edit_similarity_is_levenshtein_s_over_the_first_words(one, other, limit):
    value = edit_similarity(one, other, max_words=limit)
    expected = silver_oracle.edit_similarity(one.split()[:limit], other.split()[:limit])
    assert value == pytest.approx(expected, abs=1e-12)
    assert value == edit_similarity(other, one, max_words=limit)
    assert edit_similarity(one, one) == 1


# A thought may be as long as the model likes: what lies beyond the cap costs nothing and tells nothing apart.
def test_edit_similarity_reads_no_further_than_its_cap():
    same = "x " * MAX_WORDS
    assert edit_similarity(same + "y " * 300_000, same) == 1
    assert edit_similarity(same[2:] + "y " + "z " * 300_000, same) == 1 - 1 / MAX_WORDS
    with pytest.raises(ValueError, match="max_words=0; expected at least 1"):
        edit_similarity("a", "b", max_words=0)
