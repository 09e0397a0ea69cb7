"""One trajectory at a time: turns, limits, odd tools, odd texts, and members of a group that must not meet."""

import json
import pickle

import pytest

from rlagents.environments.bfcl import REVEAL, BfclEnvironment
from rlagents.environments.bfcl_backends import official_tools
from rlagents.environments.bfcl_failures import cause_facts
from rlagents.environments.bfcl_scoring import EpisodeRecord
from rlagents.environments.bfcl_tasks import Scenario, official_tasks, scenario_of
from rlagents.facts import Task, Transcript, TurnFacts
from rlagents.tools.call_formats import PythonCalls, TaggedJsonCalls
from tests.environments.bfcl_judge import play_texts
from tests.environments.small_tasks import call, file_task

ENVIRONMENT = BfclEnvironment()


def test_a_user_turn_lasts_until_words_without_a_call():
    episode = ENVIRONMENT.start(file_task())
    first = episode.step("[mkdir('a'), nope(), mkdir('a')]")
    assert [message["role"] for message in first.messages] == ["tool", "tool", "tool"]
    assert [message["name"] for message in first.messages] == ["mkdir", "nope", "mkdir"]
    assert [message["content"] for message in first.messages[:2]] == [
        "None",
        "Error during execution: name 'nope' is not defined",
    ]
    assert first.turn == TurnFacts(tool_calls=3, tool_successes=1)
    assert not first.done
    second = episode.step("All made.")
    assert (second.messages, second.done, second.turn) == (
        [{"role": "user", "content": "request 1"}],
        False,
        TurnFacts(),
    )
    assert episode.step("[ls()]").messages[0]["content"] == json.dumps(
        {"current_directory_content": ["notes", "docs", "a"]}
    )
    last = episode.step("There.")
    assert (last.messages, last.done) == ([], True)
    outcome = ENVIRONMENT.score(file_task(), [Transcript([], [], False, episode.finish())])[0]
    assert outcome.reward == 1.0
    assert outcome.named == {
        "state": 1.0,
        "action": 1.0,
        "finished": 1.0,
        "official": 1.0,
        "calls": 4.0,
        "failed_calls": 2.0,
        "disagrees": 0.0,
        **cause_facts(None),
    }
    with pytest.raises(RuntimeError, match="over"):
        episode.step("[ls()]")


@pytest.mark.parametrize(
    ("text", "void"), [("", True), (" \n", True), ("[mkdir(", True), ("[]", False), ("No.", False)]
)
def test_a_turn_without_call_or_answer_is_void(text, void):
    observation = ENVIRONMENT.start(file_task()).step(text)
    assert observation.turn == TurnFacts(void=void)
    assert observation.messages == [{"role": "user", "content": "request 1"}]


@pytest.mark.parametrize(
    ("texts", "state", "action"),
    [
        (["[mkdir('a')]", "ok", "[ls()]", "ok"], 1.0, 1.0),
        (["[mkdir('a')]", "ok", "[ls(a=True)]", "ok"], 1.0, 1.0),  # further arguments are free
        (["ok", "[ls(), mkdir('a')]", "ok"], 1.0, 1.0),  # and so is the order
        (["[mkdir('a')]", "ok", "ok"], 1.0, 0.0),
        (["[mkdir('b')]", "ok", "[ls()]", "ok"], 0.0, 0.0),
        (["[mkdir('a'), touch('b')]", "ok", "[ls()]", "ok"], 0.0, 1.0),
        (["[touch('a'), rm('a'), mkdir('a')]", "ok", "[ls()]", "ok"], 1.0, 1.0),
    ],
)
def test_reward_is_state_times_action(texts, state, action):
    outcome = play_texts(ENVIRONMENT, file_task(), texts)
    assert (outcome.named["state"], outcome.named["action"]) == (state, action)
    assert outcome.reward == state * action


def test_a_trajectory_cut_short_scores_nothing():
    task = file_task(((call("mkdir", dir_name="a"),),))
    outcome = play_texts(ENVIRONMENT, task, ["[mkdir('a')]"])
    assert (outcome.reward, outcome.named["state"], outcome.named["action"]) == (0.0, 1.0, 1.0)
    assert (outcome.named["finished"], outcome.named["official"]) == (0.0, 0.0)


def test_a_dead_worker_scores_nothing():
    outcomes = ENVIRONMENT.score(file_task(), [Transcript([], [], False, record) for record in (None, "rubbish")])
    assert [outcome.reward for outcome in outcomes] == [0.0, 0.0]


@pytest.mark.parametrize("turn", [0, 1])
def test_the_step_after_the_limit_is_carried_out_and_ends_the_episode(turn):
    task = file_task(((call("mkdir", dir_name="a"),), (call("ls"),)))
    episode = ENVIRONMENT.start(task)
    if turn:
        episode.step("[mkdir('a')]")
        episode.step("ok")
    texts = ["[ls()]"] * 20
    assert not any(episode.step(text).done for text in texts)
    last = episode.step("[pwd()]" if turn else "[mkdir('a')]")
    assert last.done
    assert len(last.messages) == 1
    record = episode.finish()
    assert record.state_matches
    outcome = ENVIRONMENT.score(task, [Transcript([], [], False, record)])[0]
    assert (outcome.reward, outcome.named["action"], outcome.named["official"]) == (0.0, 1.0, 0.0)


def test_twenty_steps_in_each_user_turn_are_allowed():
    task = file_task(((call("mkdir", dir_name="a"),), (call("ls"),)))
    texts = [*["[ls()]"] * 19, "[mkdir('a')]", "ok", *["[ls()]"] * 20, "ok"]
    assert play_texts(ENVIRONMENT, task, texts).reward == 1.0


@pytest.mark.parametrize("style", [PythonCalls(), TaggedJsonCalls()], ids=lambda style: type(style).__name__)
def test_withheld_tools_are_described_in_their_turn(style):
    environment = BfclEnvironment(format=style)
    task = next(task for task in official_tasks("miss_func") if 0 not in scenario_of(task).revealed)
    scenario = scenario_of(task)
    (turn, names), *_ = scenario.revealed.items()
    episode = environment.start(task)
    messages = [message for _ in range(turn) for message in episode.step("No.").messages]
    tools = [tool for tool in official_tools(scenario.classes) if tool.name in names]
    assert messages[-1] == {"role": "user", "content": f"{REVEAL}\n{style.describe(tools)}"}
    assert style.describe(tools) not in environment.opening(task).messages[0]["content"]


def test_environment_and_record_travel_between_processes():
    assert pickle.loads(pickle.dumps(ENVIRONMENT)) == ENVIRONMENT
    task = pickle.loads(pickle.dumps(official_tasks("base")[0]))
    episode = ENVIRONMENT.start(task)
    episode.step("[pwd()]")
    record = episode.finish()
    assert isinstance(record, EpisodeRecord)
    assert pickle.loads(pickle.dumps(record)) == record
    assert scenario_of(task).digest == scenario_of(official_tasks("base")[0]).digest


def test_a_foreign_task_is_refused():
    with pytest.raises(TypeError, match="no Scenario"):
        ENVIRONMENT.opening(Task("x", {"question": 1}))
    with pytest.raises(ValueError, match="1 user turns with 0"):
        Scenario(("MathAPI",), {}, ("x",), ())
    with pytest.raises(ValueError, match="unknown back-end 'Files'"):
        ENVIRONMENT.start(Task("x", {"scenario": Scenario(("Files",), {}, ("x",), ((),))}))
