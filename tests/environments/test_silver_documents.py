"""Silver documents and turn scores against plain loops, and what must hold of them whatever was retrieved."""

import dataclasses
import pickle
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.environments.silver_documents import (
    RELEASED_CODE,
    SearchRecord,
    new_documents,
    new_search,
    new_thought,
    silver_documents,
    turn_scores,
    valid_format,
)
from tests.effort import draws
from tests.oracles import silver_documents as oracle

REFINEMENTS = {
    "the paper": (),
    "new documents": (new_documents,),
    "new search": (new_search,),
    "new thought": (new_thought,),
    "valid format": (valid_format,),
    "the released code": RELEASED_CODE,
}

thought = st.lists(st.sampled_from(["so", "now", "search", "again"]), max_size=4).map(" ".join)
turn = st.tuples(st.lists(st.sampled_from("abcdefg"), max_size=4), thought)


@st.composite
def records(draw, f1s=(0.0, 0.5, 0.7, 0.7, 0.9, 1.0), valid_formats=(True, True, True, False)):
    turns = draw(st.lists(turn, max_size=4))
    documents, thoughts = [found for found, _ in turns], [said for _, said in turns]
    return SearchRecord(documents, draw(st.sampled_from(f1s)), draw(st.sampled_from(valid_formats)), thoughts)


groups = st.lists(records(), max_size=5)
many = settings(max_examples=draws(60), deadline=None)


def oracle_silver(group, minimum_f1=0.7):
    fields = [[getattr(member, name) for member in group] for name in ("documents", "f1", "valid_format")]
    return oracle.silver_documents(*fields, minimum_f1)


def oracle_score(name, member, number, silver):
    """The turn's score with one refinement of the released code alone, with all of them or with none."""
    said = [text.split() for text in member.thoughts]
    refused = {
        "new search": oracle.most_shared(member.documents, number) > 1,
        "new thought": any(oracle.edit_similarity(said[number], said[u]) > 0.5 for u in range(number)),
        "valid format": not member.valid_format,
    }
    if any(refused.values()) if name == "the released code" else refused.get(name, False):
        return 0.0
    only_new = name in ("new documents", "the released code")
    score = oracle.new_documents_score if only_new else oracle.turn_score
    return score(member.documents, number, silver)


@given(group=groups, minimum=st.sampled_from([0.0, 0.5, 0.7, 1.0]))
@many
def test_silver_documents_are_those_of_the_best_eligible_members(group, minimum):
    assert silver_documents(group, minimum) == set(oracle_silver(group, minimum))


@pytest.mark.parametrize("name", REFINEMENTS)
@given(group=groups)
@many
def test_turn_scores_are_the_oracle_s(name, group):
    silver = silver_documents(group)
    scores = turn_scores(group, silver, REFINEMENTS[name])
    expected = [[oracle_score(name, m, s, silver) for s in range(len(m.documents))] for m in group]
    assert scores == [pytest.approx(row, abs=1e-12) for row in expected]
    assert all(0 <= score <= 1 for row in scores for score in row)


@given(group=groups, chosen=st.lists(st.sampled_from(RELEASED_CODE), max_size=4), data=st.data())
@many
def test_refinements_only_lower_scores_and_their_order_is_free(group, chosen, data):
    silver = silver_documents(group)
    refined = turn_scores(group, silver, chosen)
    shuffled = data.draw(st.permutations(chosen))
    assert turn_scores(group, silver, shuffled) == refined
    one_less = turn_scores(group, silver, chosen[1:])
    assert all(a <= b for row, less in zip(refined, one_less) for a, b in zip(row, less))


@given(group=groups, data=st.data())
@many
def test_the_order_of_members_and_of_a_turn_s_documents_means_nothing(group, data):
    scores = turn_scores(group, silver_documents(group), RELEASED_CODE)
    order = data.draw(st.permutations(range(len(group))))

    def shuffled(member):
        # A document that a turn retrieves twice counts once.
        found = [data.draw(st.permutations([*turn, *turn[:1]])) for turn in member.documents]
        return dataclasses.replace(member, documents=found)

    permuted = [shuffled(group[i]) for i in order]
    assert silver_documents(permuted) == silver_documents(group)
    assert turn_scores(permuted, silver_documents(permuted), RELEASED_CODE) == [scores[i] for i in order]


@given(group=groups, data=st.data())
@many
def test_more_documents_never_make_fewer_silver_ones(group, data):
    def richer(member):
        more = [[*turn, *data.draw(st.lists(st.sampled_from("axyz"), max_size=2))] for turn in member.documents]
        return dataclasses.replace(member, documents=more)

    assert silver_documents([richer(member) for member in group]) >= silver_documents(group)


@given(group=st.lists(st.one_of(records(f1s=(0.0, 0.69)), records(valid_formats=(False,))), max_size=4))
@many
def test_nobody_eligible_is_no_score_at_all(group):
    silver = silver_documents(group)
    assert silver == set()
    assert turn_scores(group, silver) == [[0.0] * len(member.documents) for member in group]


# Only the best count: a member that is merely good enough leaves its detours out of the set.
def test_the_paper_s_example_by_hand():
    best = SearchRecord([["a", "b", "c"], ["c", "d", "e"], []], 1.0, True)
    good = SearchRecord([["x", "y", "z"], []], 0.8, True)
    cheat = SearchRecord([["z"]], 1.0, False)
    failed = SearchRecord([["a", "b", "q"], ["b", "a", "d"], ["x", "y", "z"], []], 0.0, True)
    group = [best, good, cheat, failed]
    silver = silver_documents(group)
    assert silver == set("abcde")
    third = pytest.approx(1 / 3)
    assert turn_scores(group, silver) == [[1, 1, 0], [0, 0], [0], [pytest.approx(2 / 3), 1, 0, 0]]
    assert turn_scores(group, silver, [new_documents])[3] == [pytest.approx(2 / 3), third, 0, 0]
    assert turn_scores(group, silver, [new_search])[3] == [pytest.approx(2 / 3), 0, 0, 0]
    assert turn_scores(group, silver, [partial(new_search, maximum_shared=2)])[3] == [pytest.approx(2 / 3), 1, 0, 0]
    # The set need not come from the group: a judge's choice is one too.
    assert turn_scores(group, {"q"})[3] == [third, 0, 0, 0]


def test_a_thought_may_be_half_like_an_earlier_one():
    member = SearchRecord([["a"], ["b"], ["c"]], 1.0, True, ["one two", "one three", "one two four"])
    silver = silver_documents([member])
    assert turn_scores([member], silver, [new_thought]) == [[1, 1, 0]]
    assert turn_scores([member], silver, [partial(new_thought, maximum_similarity=0.7)]) == [[1, 1, 1]]
    assert turn_scores([member], silver, [partial(new_thought, maximum_similarity=0.4)]) == [[1, 0, 0]]


def test_records_and_refinements_go_to_the_workers():
    record = SearchRecord([["a"], []], 1.0, True, ["first", "then"])
    again, refinements = pickle.loads(pickle.dumps((record, [*RELEASED_CODE, partial(new_search, maximum_shared=2)])))
    assert again == record
    assert turn_scores([again], {"a"}, refinements) == [[1, 0]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"f1": float("nan")}, "f1 is nan; expected a number from 0 to 1"),
        ({"f1": 1.1}, "f1 is 1.1; expected"),
        ({"f1": -0.1}, "f1 is -0.1; expected"),
        ({"thoughts": ["only one"]}, "1 thoughts .* came with documents of 2 turns"),
        ({"thoughts": "no"}, r"2 thoughts \(str\) came"),
        ({"documents": ["title and text", []]}, "documents of turn 0 are 'title and text'; expected a sequence"),
        ({"documents": [[], [7]]}, "a document of turn 1 is 7; expected a string"),
    ],
)
def test_bad_records_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        SearchRecord(**({"documents": [["a"], []], "f1": 1.0, "valid_format": True} | changes))


def test_bad_numbers_are_refused():
    member = SearchRecord([["a"], ["a"]], 1.0, True)
    for minimum in (float("nan"), -0.1, 1.1):
        with pytest.raises(ValueError, match=f"minimum_f1={minimum}; expected a number from 0 to 1"):
            silver_documents([member], minimum)
    for refinement, message in [
        (new_thought, "a member has none; give SearchRecord its thoughts"),
        (partial(new_thought, maximum_similarity=float("nan")), "maximum_similarity=nan; expected a number"),
        (partial(new_search, maximum_shared=-1), "maximum_shared=-1; expected a number of documents"),
    ]:
        with pytest.raises(ValueError, match=message):
            turn_scores([member], {"a"}, [refinement])
