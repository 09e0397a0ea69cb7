"""Scripted failures really fail, for the one thing that is wrong in them, and RCTP is shown them 1:1."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.rc_grpo.failures import (
    CAUSES,
    WithFailures,
    both,
    failing,
    premature_end,
    reward,
    wrong_arguments,
    wrong_tool,
)
from experiments.rc_grpo.procedural import FORMAT, TRAIN, After, aimless
from rlagents.environments.bfcl_procedural import HELD_OUT, ProceduralTasks, procedural_environment
from rlagents.environments.bfcl_tasks import Scenario, scenario_of
from rlagents.facts import Task
from rlagents.rollouts.conditions import HIGH, LOW
from rlagents.rollouts.experts import Demonstration, complete
from tests.effort import draws

ENVIRONMENT = procedural_environment()
TASKS = ProceduralTasks(TRAIN, levels=(1, 2, 3), seed=5)
PLACES = st.integers(0, 5000)


def texts_of(turns):
    return [text for turn in turns for text in turn]


@settings(max_examples=draws(60), deadline=None)
@given(PLACES, st.sampled_from([CAUSES, *((cause,) for cause in (wrong_tool, premature_end))]))
def test_what_fails_earns_nothing_however_well_it_is_continued(place, causes):
    task = TASKS[place]
    expert, demonstration = ENVIRONMENT.expert(task), failing(ENVIRONMENT, causes)(task, 0)
    ended = sum(text == ENVIRONMENT.closing for text in demonstration.texts)
    assert demonstration.ends == (ended == len(expert))
    assert reward(ENVIRONMENT, task, [*demonstration.texts, *texts_of(expert[ended:])]) == 0
    # Up to the user turn where it goes wrong, it is the expert's word; there it is not.
    before = texts_of(expert[: ended - 1])
    assert list(demonstration.texts[: len(before)]) == before
    assert list(demonstration.texts[len(before) :]) != expert[ended - 1]
    assert reward(ENVIRONMENT, task, texts_of(expert)) == 1
    assert failing(ENVIRONMENT, causes)(task, 7) == demonstration


@settings(max_examples=draws(100), deadline=None)
@given(PLACES, st.integers(0, 2**32))
def test_each_cause_changes_what_it_says(place, seed):
    task = TASKS[place]
    scenario, source = scenario_of(task), random.Random(seed)
    for turn in scenario.truth:
        *right, wrong = wrong_tool(turn, scenario, ENVIRONMENT, source)
        assert right == list(turn[: len(right)])
        assert wrong.name != turn[len(right)].name
        names = [parameter.name for parameter in ENVIRONMENT.callable_tools(scenario)[wrong.name].parameters]
        assert list(wrong.arguments) == names
        changed = wrong_arguments(turn, scenario, ENVIRONMENT, source)
        if changed is None:
            assert not any(call.arguments for call in turn)
        else:
            wanted, found = turn[len(changed) - 1], changed[-1]
            assert changed[:-1] == list(turn[: len(changed) - 1])
            assert (found.name, list(found.arguments)) == (wanted.name, list(wanted.arguments))
            assert sum(found.arguments[name] != value for name, value in wanted.arguments.items()) == 1
        early = premature_end(turn, scenario, ENVIRONMENT, source)
        assert len(early) < len(turn)
        assert early == turn[: len(early)]


def test_failures_have_all_causes_about_as_often():
    named = [failing(ENVIRONMENT)(TASKS[place], 0) for place in range(300)]
    first = [demonstration for place, demonstration in enumerate(named) if len(ENVIRONMENT.expert(TASKS[place])) == 1]
    at_once = sum(len(demonstration.texts) == 1 for demonstration in first)  # "done." and no call
    assert 0.1 < at_once / len(first) < 0.45


def test_what_cannot_be_failed_in_is_refused():
    with pytest.raises(ValueError, match="no causes"):
        failing(ENVIRONMENT, ())
    scenario = scenario_of(TASKS[0])
    silent = Scenario(scenario.classes, scenario.initial_config, ("thanks.",), ((),))
    with pytest.raises(ValueError, match="0 turns with calls"):
        failing(ENVIRONMENT)(Task("silent", {"scenario": silent}), 0)


def test_experts_and_failures_stand_side_by_side_each_under_its_goal():
    tasks, demonstrate = WithFailures(TASKS), both(ENVIRONMENT, failing(ENVIRONMENT))
    for place in range(20):
        solved, failed = (demonstrate(tasks[2 * place + odd], 0) for odd in (0, 1))
        task = TASKS[place]
        assert solved == complete(ENVIRONMENT.expert)(task, 0)._replace(condition=HIGH)
        assert failed == failing(ENVIRONMENT)(task, 0)._replace(condition=LOW)
        assert isinstance(solved, Demonstration)


def test_the_base_learns_the_format_and_nothing_of_the_task():
    tasks = ProceduralTasks(FORMAT, levels=(1, 2), seed=3)
    expert = aimless(ENVIRONMENT)
    earned = []
    for place in range(100):
        task = tasks[place]
        turns = expert(task)
        assert expert(task) == turns
        assert len(turns) == len(scenario_of(task).user_turns)
        calls = [call for turn in turns for text in turn[:-1] for call in [text]]
        tools = ENVIRONMENT.callable_tools(scenario_of(task))
        assert all(not ENVIRONMENT.format.parse(call, tools).error for call in calls)
        earned.append(reward(ENVIRONMENT, task, texts_of(turns)))
    assert sum(earned) <= 5


def test_the_parts_share_no_task():
    parts = [FORMAT, TRAIN, HELD_OUT]
    tasks = [scenario_of(ProceduralTasks(part, seed=1)[place]) for part in parts for place in range(30)]
    assert all(sum(task in part for part in parts) == 1 for task in tasks)


def test_stage_2_takes_what_follows_the_demonstrated_tasks():
    later = After(TASKS, 10)
    assert [later[place].id for place in range(5)] == [TASKS[10 + place].id for place in range(5)]
    with pytest.raises(IndexError, match="no task -1"):
        later[-1]
