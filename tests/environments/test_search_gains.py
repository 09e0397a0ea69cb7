"""Search gains, redundancy and the outcome of StepSearch against plain loops, and what must hold of them."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.environments.search_gains import (
    information_gains,
    redundancies,
    search_key_score,
    step_scores,
    step_search_outcome,
    tfidf_similarity,
)
from tests.effort import draws
from tests.oracles import answers
from tests.oracles import search_gains as oracle

word = st.sampled_from(["Paris", "is", "the", "capital", "of", "France", "river", "a", "x_1", "Été", "no-one", "?"])
document = st.lists(word, max_size=5).map(" ".join)
retrievals = st.lists(st.lists(document, max_size=3), max_size=5)
golds = st.lists(document, min_size=1, max_size=3)
many = settings(max_examples=draws(60), deadline=None)


def table_similarity(seed):
    """Any similarity, negative ones too: a pure function of the two texts."""
    return lambda one, other: (sum(map(ord, one)) * 31 + sum(map(ord, other)) * 17 + seed) % 101 / 60 - 0.4


@given(retrieved=retrievals, gold=golds, seed=st.integers(0, 100), scale=st.sampled_from([0.6, 1.6, 0.0, 1.0]))
@many
def test_step_scores_are_the_oracle_s_for_any_similarity(retrieved, gold, seed, scale):
    similarity = table_similarity(seed)
    gains = oracle.information_gains(retrieved, gold, similarity)
    repeated = oracle.redundancies(retrieved)
    assert information_gains(retrieved, gold, similarity) == pytest.approx(gains, abs=1e-12)
    assert redundancies(retrieved) == pytest.approx(repeated, abs=1e-12)
    expected = [scale * (gain - share) for gain, share in zip(gains, repeated)]
    assert step_scores(retrieved, gold, similarity, scale) == pytest.approx(expected, abs=1e-12)
    if scale == 0.6:
        assert step_scores(retrieved, gold, similarity) == pytest.approx(expected, abs=1e-12)


@given(one=document, other=document, corpus=st.lists(document, max_size=4))
@many
def test_tfidf_similarity_is_the_formula(one, other, corpus):
    similarity = tfidf_similarity(corpus)
    assert similarity(one, other) == pytest.approx(oracle.tfidf_cosine(one, other, corpus), abs=1e-12)
    assert 0 <= similarity(one, other) == similarity(other, one) <= 1
    assert pickle.loads(pickle.dumps(similarity))(one, other) == similarity(one, other)
    has_words = bool(oracle.words(one))
    assert similarity(one, one) == pytest.approx(float(has_words), abs=1e-12)


@given(retrieved=retrievals, gold=golds)
@many
def test_gains_add_up_to_the_best_that_was_found(retrieved, gold):
    similarity = tfidf_similarity(gold)
    gains = information_gains(retrieved, gold)
    assert gains == information_gains(retrieved, gold, similarity)
    every = [found for step in retrieved for found in step]
    best = [max((similarity(found, wanted) for found in every), default=0.0) for wanted in gold]
    assert sum(gains) == pytest.approx(sum(best) / len(gold), abs=1e-12)
    assert all(0 <= gain <= 1 for gain in gains)
    assert all(0 <= share <= 1 for share in redundancies(retrieved))
    assert all(-1 <= score <= 1 for score in step_scores(retrieved, gold, scale=1.0))


@given(retrieved=retrievals, gold=golds, data=st.data())
@many
def test_a_repeated_search_gains_nothing_and_is_all_redundant(retrieved, gold, data):
    known = data.draw(st.sampled_from([step for step in [*retrieved, ["Paris"]] if step]))
    longer = [*retrieved, known, data.draw(st.permutations([*known, *known]))]
    assert information_gains(longer, gold)[-1] == 0
    assert redundancies(longer)[-1] == 1
    assert step_scores(longer, gold)[-1] == pytest.approx(-0.6)
    assert step_scores([*longer, []], gold)[-1] == 0
    # What came before stays what it was: a step is scored by its past alone.
    assert step_scores(longer, gold)[: len(retrieved)] == step_scores(retrieved, gold)


def test_two_hops_by_hand():
    similarity = {("a", "A"): 0.5, ("b", "A"): 0.75, ("b", "B"): 0.5, ("c", "B"): 0.25}

    looked_up = []

    def look_up(one, other):
        looked_up.append((one, other))
        return similarity.get((one, other), 0.0)

    retrieved = [["a", "q"], ["a", "b"], ["c"], ["a", "b", "c", "new"], []]
    assert information_gains(retrieved, ["A", "B"], look_up) == [0.25, 0.375, 0, 0, 0]
    # A similarity may be costly: each pair is asked for once.
    assert len(looked_up) == len(set(looked_up)) == 5 * 2
    assert redundancies(retrieved) == [0, 0.5, 0, 0.75, 0]
    assert step_scores(retrieved, ["A", "B"], look_up, scale=1.6) == pytest.approx([0.4, -0.2, 0, -1.2, 0])


@given(queries=st.lists(document, max_size=3), groups=st.lists(st.lists(document, min_size=1, max_size=3), min_size=1))
@many
def test_search_keys_are_matched_by_the_best_query(queries, groups):
    score = search_key_score(queries, groups)
    assert score == pytest.approx(oracle.search_key_score(queries, groups, answers.f1), abs=1e-12)
    assert 0 <= score <= 1
    assert search_key_score([*queries, *(group[0] for group in groups)], groups) == 1


def test_the_outcome_is_f1_and_search_keys_or_minus_one():
    groups = [["capital of France", "French capital"], ["Paris river"]]
    queries = ["French capital", "river"]
    keys = (1 + 2 / 3) / 2
    assert search_key_score(queries, groups) == pytest.approx(keys)
    assert step_search_outcome("the Seine", ["Seine"], queries, groups) == pytest.approx(1 + 0.618 * keys)
    assert step_search_outcome("Rhône", ["Seine"], queries, groups) == pytest.approx(0.618 * keys)
    assert step_search_outcome("Seine", ["Seine"], queries, groups, key_weight=0.5) == pytest.approx(1 + 0.5 * keys)
    assert step_search_outcome("Seine", ["Seine"], [], groups) == 1
    assert step_search_outcome("", ["Seine"], [], groups) == 0
    assert step_search_outcome(None, ["Seine"], queries, groups) == -1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: step_scores([["a"]], []), r"gold is \[\]; expected a sequence of at least one document"),
        (lambda: step_scores([["a"]], "gold"), "gold is 'gold'; expected a sequence"),
        (lambda: step_scores(["text"], ["gold"]), "documents of turn 0 are 'text'; expected a sequence"),
        (lambda: redundancies([[], [3]]), "a document of turn 1 is 3; expected a string"),
        (lambda: step_scores([["a"]], ["b"], lambda *_: float("nan")), "similarity of a document is nan"),
        (lambda: step_scores([["a"]], ["b"], scale=float("inf")), "scale=inf; expected a finite number"),
        (lambda: tfidf_similarity("text"), "corpus is the string 'text'; expected a sequence"),
        (lambda: search_key_score([], []), "key_groups is empty"),
        (lambda: search_key_score([], [[]]), r"a key group is \[\]; expected"),
        (lambda: search_key_score([], ["key"]), "a key group is 'key'; expected"),
        (lambda: search_key_score("query", [["key"]]), "queries is the string 'query'; expected"),
        (lambda: step_search_outcome("a", [], [], [["key"]]), r"golds is \[\]; expected"),
        (lambda: step_search_outcome("a", ["a"], [], [["key"]], float("nan")), "key_weight=nan; expected"),
        (lambda: step_search_outcome(None, ["a"], [], []), "key_groups is empty"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
