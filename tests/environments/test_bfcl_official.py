"""All 800 official multi-turn tasks: our loop, reward and verdict against the benchmark's own checker."""

import random

import pytest

from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_backends import BACK_END_FILES, official_tools
from rlagents.environments.bfcl_tasks import CATEGORIES, official_tasks, scenario_of, task_number
from rlagents.tools.call_formats import PythonCalls, TaggedJsonCalls
from rlagents.tools.function_calls import ParsedCall
from tests.environments.bfcl_judge import official_check, play_calls, play_expert

# The judge takes any number of steps; so does the player where it is compared with it.
UNLIMITED = BfclEnvironment(max_steps=100)

# Task, turn, place of the only calls whose loss R does not see: an equal call, made in an earlier turn, stands for it,
# and what it changes, the current folder, is no public attribute.
SAME_CALL_EARLIER = {
    ("multi_turn_base_0", 3, 2),
    ("multi_turn_miss_func_0", 4, 2),
    ("multi_turn_miss_param_0", 4, 2),
    ("multi_turn_long_context_0", 3, 2),
}
# The only calls whose loss the official checker does not see: another call in the same turn got the same result.
SAME_RESULT_EARLIER = {
    ("multi_turn_base_113", 1, 0),
    ("multi_turn_miss_func_113", 2, 0),
    ("multi_turn_miss_param_113", 2, 0),
}


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_official_truth_passes_both_judges(category):
    tasks = official_tasks(category)
    assert len(tasks) == 200
    environment = BfclEnvironment()
    for task in tasks:
        outcome = play_expert(environment, task)
        assert outcome.reward == 1.0, (task.id, outcome)
        assert outcome.named["official"] == 1.0, (task.id, outcome)
        assert official_check(task, scenario_of(task).truth), task.id


def test_the_tagged_format_solves_the_same_tasks():
    environment = BfclEnvironment(format=TaggedJsonCalls())
    for category in CATEGORIES:
        for task in official_tasks(category)[::10]:
            assert play_expert(environment, task).reward == 1.0, task.id


def test_losing_any_one_call_fails():
    """All 4625 single losses, and each judge's blind spots exactly."""
    unseen_by_reward, unseen_by_checker, count = set(), set(), 0
    for category in CATEGORIES:
        for task in official_tasks(category):
            truth = scenario_of(task).truth
            for turn, calls in enumerate(truth):
                for place in range(len(calls)):
                    turns = [list(calls) for calls in truth]
                    del turns[turn][place]
                    outcome = play_calls(UNLIMITED, task, turns)
                    verdict = official_check(task, turns)
                    assert outcome.named["official"] == verdict, (task.id, turn, place)
                    count += 1
                    if outcome.reward:
                        unseen_by_reward.add((task.id, turn, place))
                    if verdict:
                        unseen_by_checker.add((task.id, turn, place))
    assert count == 4625
    assert unseen_by_reward == SAME_CALL_EARLIER
    assert unseen_by_checker == SAME_RESULT_EARLIER


def disturb(turns: list[list[ParsedCall]], others: list[ParsedCall], source: random.Random) -> None:
    """One random change: a call more, moved, repeated, or with another argument; or two calls in the other order."""
    filled = [turn for turn in turns if turn]
    turn = source.choice(filled)
    place = source.randrange(len(turn))
    change = source.randrange(5)
    if change == 0:
        source.choice(turns).insert(0, source.choice(others))
    elif change == 1:
        source.choice(turns).append(turn.pop(place))
    elif change == 2:
        turn.insert(place, turn[place])
    elif change == 3:
        arguments = dict(turn[place].arguments)
        arguments[source.choice([*arguments, "bogus"])] = source.choice(["zzz", 3, [], None])
        turn[place] = ParsedCall(turn[place].name, arguments)
    else:
        source.shuffle(turn)


def test_official_verdict_agrees_with_the_checker_on_disturbed_conversations():
    """A change to the truth, some of which the checker lets pass: the verdict computed here is the checker's."""
    source = random.Random(0)
    verdicts = []
    for category in CATEGORIES:
        for task in source.sample(official_tasks(category), 100):
            scenario = scenario_of(task)
            others = [ParsedCall(tool.name) for tool in official_tools(scenario.classes) if not tool.parameters]
            turns = [list(turn) for turn in scenario.truth]
            disturb(turns, others or list(turns[0]), source)
            verdicts.append(official_check(task, turns))
            assert play_calls(UNLIMITED, task, turns).named["official"] == verdicts[-1], (task.id, turns)
    assert 50 < sum(verdicts) < len(verdicts) - 50


def test_a_manual_shows_each_class_once_and_withholds_what_is_revealed_later():
    environment = BfclEnvironment(format=PythonCalls("TOOLS"))
    revealing = 0
    for category in CATEGORIES:
        for task in official_tasks(category):
            scenario = scenario_of(task)
            system, user = environment.opening(task).messages
            heads = [line.split("(")[0] for line in system["content"].splitlines()[1:] if not line.startswith(" ")]
            withheld = {name for names in scenario.revealed.values() for name in names}
            assert sorted(heads) == sorted({tool.name for tool in official_tools(scenario.classes)} - withheld), task.id
            assert user == {"role": "user", "content": scenario.user_turns[0]}
            revealing += bool(withheld)
    assert revealing == 200


def test_tools_are_described_by_their_signatures_in_json_schema():
    tools = {tool.name: tool for name in BACK_END_FILES for tool in official_tools((name,))}
    assert len(tools) == 128
    # The benchmark's own description has another order than the signature by which positional arguments are bound.
    names = ["access_token", "insurance_type", "booking_id", "insurance_cost", "card_id"]
    assert [parameter.name for parameter in tools["purchase_insurance"].parameters] == names
    assert tools["find"].parameters[1].schema["default"] is None
    types = {parameter.schema["type"] for tool in tools.values() for parameter in tool.parameters}
    assert types == {"string", "integer", "number", "boolean", "array", "object"}
    assert all(0 < len(tool.description) < 400 and "belongs to" not in tool.description for tool in tools.values())


def test_tasks_with_one_number_are_variants_of_one_problem():
    base, missing = (official_tasks(category) for category in ("base", "miss_param"))
    assert [task_number(task) for task in base] == [task_number(task) for task in missing] == list(range(200))
    assert scenario_of(base[7]).initial_config == scenario_of(missing[7]).initial_config


def test_unknown_categories_are_named():
    with pytest.raises(ValueError, match="miss_func"):
        official_tasks("missing")
