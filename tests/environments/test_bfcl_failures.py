"""Causes of failures: against an oracle on any record, and told through the environment by what an assistant writes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_actions import each_exists, one_to_one
from rlagents.environments.bfcl_failures import CAUSES, FAILED, cause_facts, cause_in, cause_of
from rlagents.environments.bfcl_scoring import EpisodeRecord, TurnRecord
from rlagents.environments.bfcl_turns import MergedTurns
from rlagents.facts import Transcript
from tests.effort import draws
from tests.environments.bfcl_judge import play_texts
from tests.environments.small_tasks import call, file_task
from tests.oracles import failure_causes as oracle

CALLS = st.builds(
    lambda name, arguments: call(name, **arguments),
    st.sampled_from(["f", "g", "h"]),
    st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from([1, 2]), max_size=2),
)
# What was tried in a turn: calls, and names of calls that could not be bound.
ATTEMPTS = st.lists(st.one_of(CALLS, st.sampled_from(["f", "g", "nope"])), max_size=4)
TURNS = st.lists(st.tuples(ATTEMPTS, st.booleans(), st.lists(CALLS, max_size=3)), min_size=1, max_size=3)


def turn_record(attempts, garbled):
    calls = [one for one in attempts if not isinstance(one, str)]
    refused = [
        (sum(not isinstance(before, str) for before in attempts[:place]), one)
        for place, one in enumerate(attempts)
        if isinstance(one, str)
    ]
    return TurnRecord(tuple(calls), len(attempts), True, True, tuple(refused), garbled)


def plain(one):
    return (one, None) if isinstance(one, str) else (one.name, dict(one.arguments))


@settings(max_examples=draws(1000), deadline=None)
@given(TURNS, st.booleans(), st.booleans())
def test_as_the_oracle_has_them(turns, finished, state):
    records = tuple(turn_record(attempts, garbled) for attempts, garbled, _ in turns)
    truth = [wanted for _, _, wanted in turns]
    found = cause_of(EpisodeRecord(records, finished, state, 0, 0), truth, each_exists)
    attempts = [[plain(one) for one in tried] for tried, _, _ in turns]
    wanted = [[plain(one) for one in calls] for calls in truth]
    assert found == oracle.cause(attempts, [garbled for _, garbled, _ in turns], wanted, finished, state)


@settings(max_examples=draws(300), deadline=None)
@given(TURNS, st.booleans(), st.booleans(), st.sampled_from([each_exists, one_to_one]))
def test_a_failure_has_exactly_one_cause_and_a_success_none(turns, finished, state, rule):
    records = tuple(turn_record(attempts, garbled) for attempts, garbled, _ in turns)
    truth = [wanted for _, _, wanted in turns]
    cause = cause_of(EpisodeRecord(records, finished, state, 0, 0), truth, rule)
    solved = finished and state and rule([one for record in records for one in record.calls], truth)
    assert (cause is None) == solved
    assert sum(cause_facts(cause).values()) == (not solved)
    assert cause is None or cause_facts(cause)[f"{FAILED}{cause}"] == 1.0


MKDIR, LS = "[mkdir('a')]", "[ls()]"
ENDS = [
    ([MKDIR, "ok", LS, "ok"], None),
    ([MKDIR, "ok", LS], "cut_short"),
    ([], "cut_short"),
    ([LS] * 21, "cut_short"),  # one step too many ends it
    (["[mkdir('b')]", "ok", LS, "ok"], "wrong_arguments"),
    (["[mkdir('a', 'b')]", "ok", LS, "ok"], "wrong_arguments"),  # cannot be bound
    (["[touch('a')]", "ok", LS, "ok"], "wrong_tool"),
    (["[make_folder('a')]", "ok", LS, "ok"], "wrong_tool"),  # there is no such tool
    ([MKDIR, "ok", "[pwd()]", "ok"], "wrong_tool"),
    (["[mkdir('a'", LS, "ok"], "garbled"),
    (["", LS, "ok"], "garbled"),
    (["ok", LS, "ok"], "premature_end"),
    (["[ls()]", "ok", LS, "ok"], "premature_end"),  # asked for later: not in its place
    (["[pwd()]", MKDIR, "ok", "ok"], "premature_end"),  # looked up in another turn
    (["[ls(1, 2, 3)]", MKDIR, "ok", "ok"], "premature_end"),
    ([MKDIR, "[touch('b')]", "ok", LS, "ok"], "spoiled_state"),
    (["[touch('b')]", "ok", "[ls()]", "ok"], "wrong_tool"),  # the first that is missing decides
]


@pytest.mark.parametrize(("texts", "cause"), ENDS)
def test_causes_of_what_is_written(texts, cause):
    outcome = play_texts(BfclEnvironment(), file_task(), texts)
    assert cause_in(outcome) == cause
    assert outcome.reward == (cause is None)
    assert [name for name in outcome.named if name.startswith(FAILED)] == [f"{FAILED}{name}" for name in CAUSES]


def test_looking_around_before_is_not_held_against_the_end():
    """All requests in one message: what came before the last call that was made is no wrong tool."""
    merged = BfclEnvironment(turns=MergedTurns())
    task = file_task(((call("mkdir", dir_name="a"),), (call("touch", file_name="b"),)))
    assert cause_in(play_texts(merged, task, ["[pwd()]", MKDIR, "[done()]"])) == "premature_end"
    assert cause_in(play_texts(merged, task, [MKDIR, "[pwd()]", "[done()]"])) == "wrong_tool"
    assert cause_in(play_texts(merged, task, ["[touch('c')]", MKDIR, "[done()]"])) == "wrong_arguments"


def test_a_call_that_has_to_be_made_twice():
    strict = BfclEnvironment(action_rule=one_to_one)
    task = file_task(((call("ls"),), (call("ls"),)))
    assert cause_in(play_texts(strict, task, [LS, "ok", "ok"])) == "premature_end"
    assert cause_in(play_texts(strict, task, [LS, "ok", "[ls(True, 1, 2, 3)]", "ok"])) == "wrong_arguments"


def test_a_worker_that_died_leaves_a_trajectory_that_was_cut_short():
    environment = BfclEnvironment()
    (outcome,) = environment.score(file_task(), [Transcript([], [], True, None)])
    assert (outcome.reward, cause_in(outcome)) == (0.0, "cut_short")


def test_a_rule_that_refuses_all_leaves_a_cause_too():
    """A rule of one's own need not be one that looks call by call."""
    record = EpisodeRecord((turn_record([], False),), True, True, 0, 0)
    assert cause_of(record, [[]], lambda calls, truth: False) == "premature_end"
