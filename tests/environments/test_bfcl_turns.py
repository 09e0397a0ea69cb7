"""All requests in one message: the same calls, state and reward, and an end that the model has to call."""

import pickle

import pytest

from rlagents.environments.bfcl import REVEAL, BfclEnvironment
from rlagents.environments.bfcl_tasks import CATEGORIES, official_tasks, scenario_of
from rlagents.environments.bfcl_turns import ALL_STEPS, DONE, MergedTurns
from rlagents.facts import TurnFacts
from rlagents.tools.call_formats import PythonCalls, TaggedJsonCalls
from tests.environments.bfcl_judge import play_expert, play_texts
from tests.environments.small_tasks import call, file_task

MERGED = BfclEnvironment(turns=MergedTurns())


def test_the_user_says_everything_at_once():
    system, user = MERGED.opening(file_task()).messages
    assert user == {"role": "user", "content": f"Step 1: request 0\nStep 2: request 1\n{ALL_STEPS}"}
    assert "\ndone() - Says that every step is complete." in system["content"]
    assert "done()" not in BfclEnvironment().opening(file_task()).messages[0]["content"]
    assert pickle.loads(pickle.dumps(MERGED)) == MERGED


def test_the_episode_ends_with_the_closing_call_and_not_before():
    episode = MERGED.start(file_task())
    first = episode.step("[mkdir('a')]")
    assert ([message["role"] for message in first.messages], first.done) == (["tool"], False)
    last = episode.step("[ls(), done(), touch('b')]")
    assert (last.messages, last.done, last.turn) == ([], True, TurnFacts(tool_calls=1, tool_successes=1))
    record = episode.finish()
    assert (record.finished, record.state_matches, record.num_calls) == (True, True, 2)
    with pytest.raises(RuntimeError, match="over"):
        episode.step("[done()]")


@pytest.mark.parametrize(
    ("texts", "reward", "finished"),
    [
        (["[mkdir('a'), ls(), done()]"], 1.0, 1.0),
        (["[ls()]", "[mkdir('a')]", "[done()]"], 1.0, 1.0),
        (["[mkdir('a'), ls()]", "All done."], 1.0, 1.0),  # words end it too
        (["[done(), mkdir('a'), ls()]"], 0.0, 1.0),  # nothing is carried out behind the end
        (["[mkdir('a'), ls()]", "[done(1)]", "[done()]"], 1.0, 1.0),  # no call of done: it takes no argument
        (["[mkdir('a'), ls()]"], 0.0, 0.0),  # cut before any end
        ([*["[mkdir('a')]", "[ls()]"] * 11], 0.0, 0.0),  # never done: the step after the 20th ends it as a failure
    ],
)
def test_ends(texts, reward, finished):
    outcome = play_texts(MERGED, file_task(), texts[:21])
    assert (outcome.reward, outcome.named["finished"]) == (reward, finished)


def test_a_call_that_is_one_too_many_ends_the_episode_whatever_closes_the_turn():
    episode = MERGED.start(file_task())
    for _ in range(20):
        assert not episode.step("[ls()]").done
    assert episode.step("[mkdir('a'), done()]").done
    assert not episode.finish().finished


@pytest.mark.parametrize("style", [PythonCalls(), TaggedJsonCalls()], ids=lambda style: type(style).__name__)
@pytest.mark.parametrize("category", CATEGORIES)
def test_the_official_truth_earns_the_reward_in_one_turn(category, style):
    environment = BfclEnvironment(format=style, turns=MergedTurns())
    for task in official_tasks(category)[:: 1 if isinstance(style, PythonCalls) else 10]:
        outcome = play_expert(environment, task)
        assert (outcome.reward, outcome.named["official"]) == (1.0, 1.0), task.id
        assert environment.expert(task)[-1][-1] == style.render([call("done")])


def test_tools_that_a_turn_reveals_are_described_in_its_step():
    task = next(task for task in official_tasks("miss_func") if 0 not in scenario_of(task).revealed)
    scenario = scenario_of(task)
    (turn, names), *_ = scenario.revealed.items()
    system, user = MERGED.opening(task).messages
    step = user["content"].partition(f"Step {turn + 1}: ")[2].partition(f"\nStep {turn + 2}: ")[0]
    assert REVEAL in step
    assert all(f"{name}(" in step for name in names)
    heads = [line.split("(")[0] for line in system["content"].splitlines()]
    assert not set(names) & set(heads)
    assert DONE.name in heads
