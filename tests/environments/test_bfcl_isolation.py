"""What trajectories must not do to each other or to us: shared state, odd tools, odd texts."""

import json
import os

import pytest

from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_backends import BackEnds, official_tools
from rlagents.environments.bfcl_scoring import replay_truth
from rlagents.environments.bfcl_tasks import Scenario, official_tasks, scenario_of
from rlagents.environments.bfcl_turns import MergedTurns, SeparateTurns
from rlagents.facts import Task, Transcript
from rlagents.tools.call_formats import PythonCalls, TaggedJsonCalls
from tests.environments.bfcl_judge import play_texts
from tests.environments.small_tasks import call, file_task
from tests.tools.adversarial import BOMBS, CANARY_VARIABLE, INJECTIONS, random_texts

ENVIRONMENT = BfclEnvironment()


def long_travel_task() -> Task:
    return next(task for task in official_tasks("long_context") if "TravelAPI" in scenario_of(task).classes)


def test_members_of_a_group_share_no_state():
    task = file_task()
    first, second = ENVIRONMENT.start(task), ENVIRONMENT.start(task)
    first.step("[echo('red', 'notes'), mkdir('a'), cd('docs'), touch('b')]")
    assert second.step("[ls()]").messages[0]["content"] == json.dumps({"current_directory_content": ["notes", "docs"]})
    assert "blue" in second.step("[cat('notes')]").messages[0]["content"]
    assert "blue" in ENVIRONMENT.start(task).step("[cat('notes')]").messages[0]["content"]


def member_of_group() -> BackEnds:
    return replay_truth(scenario_of(long_travel_task())).start.copy()


def loaded_anew() -> BackEnds:
    scenario = scenario_of(long_travel_task())
    return BackEnds.load(scenario.classes, scenario.initial_config, official_tools(scenario.classes), long_context=True)


@pytest.mark.parametrize("make", [member_of_group, loaded_anew])
def test_long_context_worlds_share_no_module_level_state(make):
    """The scenario takes card records from a dict of the module, and a booking is paid from such a record."""
    worlds = [make() for _ in range(2)]
    card = "1234567812345678"
    balances = [world.instances["TravelAPI"].credit_card_list[card]["balance"] for world in worlds]
    assert balances[0] == balances[1]
    travel = worlds[0].instances["TravelAPI"]
    travel.budget_limit = None
    flight = {"travel_date": "2024-05-12", "travel_from": "SFO", "travel_to": "LAX", "travel_class": "economy"}
    booked = worlds[0].execute(call("book_flight", access_token=travel.access_token, card_id=card, **flight))
    assert booked.value["booking_status"], booked
    assert travel.credit_card_list[card]["balance"] < balances[0]
    assert worlds[1].instances["TravelAPI"].credit_card_list[card]["balance"] == balances[1]


def test_default_lists_of_tools_are_not_shared():
    """``post_tweet(content)`` puts its default list into the state, and ``mention`` extends that list."""
    config = {"TwitterAPI": {"authenticated": True}}
    truth = ((call("post_tweet", content="x"), call("mention", tweet_id=0, mentioned_usernames=["@a"])),)
    task = Task("posts", {"scenario": Scenario(("TwitterAPI",), config, ("post",), truth)})
    for _ in range(3):
        episode = ENVIRONMENT.start(task)
        assert json.loads(episode.step("[post_tweet('x')]").messages[0]["content"])["mentions"] == []
        episode.step("[mention(0, ['@a'])]")
        assert json.loads(episode.step("[get_tweet(0)]").messages[0]["content"])["mentions"] == ["@a"]
        episode.step("ok")
        assert ENVIRONMENT.score(task, [Transcript([], [], False, episode.finish())])[0].reward == 1.0


def test_the_record_keeps_what_was_written_not_what_the_state_made_of_it():
    config = {"TwitterAPI": {"authenticated": True}}
    truth = (
        (call("post_tweet", content="x", mentions=["@b"]), call("mention", tweet_id=0, mentioned_usernames=["@a"])),
    )
    task = Task("posts", {"scenario": Scenario(("TwitterAPI",), config, ("post",), truth)})
    episode = ENVIRONMENT.start(task)
    episode.step("[post_tweet('x', mentions=['@b']), mention(0, ['@a'])]")
    episode.step("ok")
    record = episode.finish()
    assert record.turns[0].calls[0].arguments["mentions"] == ["@b"]
    assert truth[0][0].arguments["mentions"] == ["@b"]
    assert ENVIRONMENT.score(task, [Transcript([], [], False, record)])[0].reward == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "[_load_scenario(scenario={})]",
        "[__init__()]",
        "[_navigate_to_directory('/')]",
        "[long_context()]",
        "[add(1, 2)]",
    ],
)
def test_only_documented_tools_of_the_classes_in_play_can_be_called(text):
    (message,) = ENVIRONMENT.start(file_task()).step(text).messages
    assert "is not defined" in message["content"]


def test_dispatch_itself_refuses_what_is_not_a_tool():
    """The reader refuses unknown names already; the back-ends do not rely on it."""
    world = BackEnds.load(("GorillaFileSystem",), {}, official_tools(("GorillaFileSystem",)), long_context=False)
    for name in ("_load_scenario", "__init__", "root", "add"):
        assert "is not defined" in world.execute(call(name)).text
    world = BackEnds.load(("GorillaFileSystem",), {}, official_tools(("GorillaFileSystem",))[:1], long_context=False)
    assert "is not defined" in world.execute(call("pwd")).text


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def raising() -> None:
    raise KeyError("broken")


def endless() -> object:
    return endless()


CYCLE: dict[str, object] = {}
CYCLE["self"] = CYCLE


@pytest.mark.parametrize(
    ("tool", "content"),
    [
        (raising, "Error during execution: 'broken'"),
        (endless, "Error during execution: maximum recursion depth exceeded"),
        (lambda: Unprintable(), "Error during execution: no text"),
        (lambda: {"a": Unprintable()}, "Error during execution: no text"),
        (lambda: 10**5000, "Error during execution: Exceeds the limit"),
        (lambda: b"\xff", r"b'\xff'"),
        (lambda: {1, 2}, "{1, 2}"),
        (lambda: None, "None"),
        (lambda: CYCLE, "{'self': {...}}"),
        (lambda: "\ud800", "?"),
        (lambda: "x" * 200, "x" * 90 + "... [110 more characters]"),
    ],
    ids=["raises", "recurses", "unprintable", "inside", "huge", "bytes", "set", "none", "cycle", "surrogate", "flood"],
)
def test_an_odd_tool_is_an_observation(monkeypatch, tool, content):
    task = file_task()
    environment = BfclEnvironment(max_output_characters=90 if "more characters" in content else 40_000)
    episode = environment.start(task)
    monkeypatch.setattr(type(episode._world.instances["GorillaFileSystem"]), "pwd", lambda self: tool())
    observation = episode.step("[pwd(), ls()]")
    assert observation.messages[0]["content"].startswith(content)
    assert "notes" in observation.messages[1]["content"]
    assert observation.turn.tool_successes == 1 + (not content.startswith("Error"))
    observation.messages[0]["content"].encode("utf-8")


def test_a_state_that_contains_itself_is_a_failure_not_a_crash():
    texts = ["[cp('docs', 'docs'), find('.'), du()]", "ok", "ok"]
    assert play_texts(ENVIRONMENT, file_task(), texts).named["state"] == 0.0
    # Even where the truth goes the same way: two such states cannot be compared.
    circular = file_task(((call("cp", source="docs", destination="docs"),), ()))
    assert play_texts(ENVIRONMENT, circular, texts).named["state"] == 0.0


@pytest.mark.parametrize("turns", [SeparateTurns(), MergedTurns()], ids=lambda turns: type(turns).__name__)
@pytest.mark.parametrize("style", [PythonCalls(), TaggedJsonCalls()], ids=lambda style: type(style).__name__)
def test_any_text_has_a_counted_outcome(style, turns):
    os.environ.pop(CANARY_VARIABLE, None)
    environment = BfclEnvironment(format=style, turns=turns)
    task = file_task(tuple((call("mkdir", dir_name=f"never {turn}"),) for turn in range(40)))
    texts = [*INJECTIONS, *BOMBS, *random_texts(10_000, seed=2)]
    outcomes, answered, episode = [], 0, environment.start(task)
    for text in texts:
        observation = episode.step(text)
        answered += 1
        assert all(isinstance(message["content"], str) for message in observation.messages)
        assert observation.messages or observation.done
        if observation.done:
            outcomes += environment.score(task, [Transcript([], [], False, episode.finish())])
            episode = environment.start(task)
    assert answered == len(texts) > 10_000
    assert len(outcomes) >= 20
    assert all(outcome.reward == 0.0 for outcome in outcomes)
    assert CANARY_VARIABLE not in os.environ
