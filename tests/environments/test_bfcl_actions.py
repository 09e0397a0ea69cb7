"""R_action in both readings, against an oracle that tries everything."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_actions import each_exists, one_to_one
from rlagents.environments.bfcl_tasks import CATEGORIES, official_tasks, scenario_of
from tests.effort import draws
from tests.environments.bfcl_judge import play_expert, play_texts
from tests.environments.small_tasks import call, file_task
from tests.oracles import action_matching as oracle

CALLS = st.builds(
    lambda name, arguments: call(name, **arguments),
    st.sampled_from(["f", "g"]),
    st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from([1, 2, None]), max_size=2),
)


def plain(calls):
    return [(one.name, dict(one.arguments)) for one in calls]


@settings(max_examples=draws(300), deadline=None)
@given(st.lists(CALLS, max_size=6), st.lists(st.lists(CALLS, max_size=2), max_size=2))
def test_as_the_oracle_has_them(calls, truth):
    wanted = plain(one for turn in truth for one in turn)
    assert each_exists(calls, truth) == oracle.each_exists(plain(calls), wanted)
    assert one_to_one(calls, truth) == oracle.one_to_one(plain(calls), wanted)


@pytest.mark.parametrize("rule", [each_exists, one_to_one])
def test_values_are_equal_or_missing(rule):
    truth = [[call("tail", file_name="x", lines=3)]]
    assert rule([call("tail", file_name="x", lines=3.0)], truth)
    assert not rule([call("tail", file_name="x")], truth)
    assert not rule([call("tail", file_name="x", lines=4), call("tail", file_name="y", lines=3)], truth)
    assert not rule([call("tail", file_name="x", lines=None)], truth)
    assert not rule([call("tail", file_name="x")], [[call("tail", file_name="x", lines=None)]])
    assert rule([], [[], []])


def test_a_call_gives_up_what_another_one_covers_too():
    """The first wanted call takes what only the second can have: it has to move to the other."""
    loose, strict = call("f", x=1), call("f", x=1, y=2)
    assert one_to_one([strict, loose], [[loose], [strict]])
    assert not one_to_one([strict], [[loose], [strict]])


def test_a_call_that_the_truth_makes_twice():
    task = file_task(((call("ls"),), (call("ls"),)))
    texts = ["[ls()]", "ok", "ok"]
    assert play_texts(BfclEnvironment(), task, texts).reward == 1.0
    strict = BfclEnvironment(action_rule=one_to_one)
    assert pickle.loads(pickle.dumps(strict)) == strict
    outcome = play_texts(strict, task, texts)
    assert (outcome.reward, outcome.named["action"]) == (0.0, 0.0)
    assert play_texts(strict, task, ["[ls()]", "ok", "[ls()]", "ok"]).reward == 1.0


def test_where_reward_and_benchmark_differ_is_told():
    """The benchmark asks for a call in every turn that needs one; R does not see in which turn it was made."""
    outcome = play_texts(BfclEnvironment(), file_task(), ["ok", "[mkdir('a'), ls()]", "ok"])
    assert (outcome.reward, outcome.named["official"], outcome.named["disagrees"]) == (1.0, 0.0, 1.0)
    assert play_texts(BfclEnvironment(), file_task(), ["ok", "ok"]).named["disagrees"] == 0.0


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_official_truth_passes_one_to_one(category):
    environment = BfclEnvironment(action_rule=one_to_one)
    twice = 0
    for task in official_tasks(category)[::4]:
        assert play_expert(environment, task).named["action"] == 1.0, task.id
        calls = plain(one for turn in scenario_of(task).truth for one in turn)
        twice += any(calls.count(one) > 1 for one in calls)
    assert twice  # the two readings do differ on official tasks
