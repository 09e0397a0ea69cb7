"""Corruptions of the truth fail in the environment, for the cause they are labelled with, everywhere alike."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_actions import one_to_one
from rlagents.environments.bfcl_corruption import corrupted
from rlagents.environments.bfcl_failures import PREMATURE_END, WRONG_ARGUMENTS, WRONG_TOOL
from rlagents.environments.bfcl_procedural import TRAIN, ProceduralTasks, procedural_environment
from rlagents.environments.bfcl_tasks import CATEGORIES, official_tasks, scenario_of
from rlagents.environments.bfcl_turns import MergedTurns
from rlagents.environments.replay import play
from rlagents.tools.call_formats import TaggedJsonCalls
from tests.environments.bfcl_judge import play_texts
from tests.environments.small_tasks import call, file_task

KINDS = {WRONG_TOOL, WRONG_ARGUMENTS, PREMATURE_END}
OFFICIAL = BfclEnvironment()
MERGED = BfclEnvironment(format=TaggedJsonCalls(), turns=MergedTurns(), action_rule=one_to_one)
PROCEDURAL = procedural_environment()


def official():
    return [task for category in CATEGORIES for task in official_tasks(category)]


def procedural():
    tasks = ProceduralTasks(TRAIN, levels=(1, 2, 3, 4), seed=5)
    return [tasks[index] for index in range(400)]


@pytest.mark.parametrize(
    ("environment", "tasks"),
    [(OFFICIAL, official), (MERGED, official), (PROCEDURAL, procedural)],
    ids=["official", "merged", "procedural"],
)
def test_every_corruption_fails_for_its_cause(environment, tasks):
    causes = Counter()
    for task in tasks():
        texts, cause = corrupted(environment, task, seed=1)
        outcome = play_texts(environment, task, texts)
        assert (outcome.reward, outcome.named["finished"]) == (0.0, 1.0), task.id
        assert [name for name, value in outcome.named.items() if name.startswith("failed/") and value] == [
            f"failed/{cause}"
        ], task.id
        causes[cause] += 1
    assert set(causes) == KINDS
    assert min(causes.values()) > 0.25 * sum(causes.values())


def test_a_seed_is_one_corruption_in_every_process():
    tasks = [task for category in CATEGORIES for task in official_tasks(category)[::20]]
    here = [corrupted(OFFICIAL, task, seed=2) for task in tasks]
    assert here == [corrupted(OFFICIAL, task, seed=2) for task in reversed(tasks)][::-1]
    assert here != [corrupted(OFFICIAL, task, seed=3) for task in tasks]
    program = (
        "import hashlib\n"
        "from rlagents.environments.bfcl import BfclEnvironment\n"
        "from rlagents.environments.bfcl_corruption import corrupted\n"
        "from rlagents.environments.bfcl_tasks import CATEGORIES, official_tasks\n"
        "tasks = [task for category in CATEGORIES for task in official_tasks(category)[::20]]\n"
        "print([tuple(corrupted(BfclEnvironment(), task, seed=2)) for task in tasks])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONHASHSEED": "11", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == str([tuple(one) for one in here]), done.stderr


def calls_of(environment, task, texts):
    tools = environment.callable_tools(scenario_of(task))
    return [one for text in texts for one in environment.format.parse(text, tools).calls]


def test_a_mistake_is_one_mistake():
    """But for an end that comes early, one call differs and the others are the truth's."""
    for task in official_tasks("base")[::4]:
        texts, cause = corrupted(OFFICIAL, task)
        made = calls_of(OFFICIAL, task, texts)
        truth = [one for turn in scenario_of(task).truth for one in turn]
        if cause == PREMATURE_END:
            assert len(made) < len(truth)
            left = iter(truth)
            assert all(any(one == other for other in left) for one in made)
        else:
            (place,) = (place for place, (one, other) in enumerate(zip(made, truth, strict=True)) if one != other)
            assert (made[place].name == truth[place].name) == (cause == WRONG_ARGUMENTS)


def test_with_all_requests_in_one_message_an_early_end_is_the_end():
    ended = 0
    for task in official_tasks("base")[::4]:
        texts, cause = corrupted(MERGED, task)
        if cause == PREMATURE_END:
            made = calls_of(MERGED, task, texts[:-1])
            truth = [one for turn in scenario_of(task).truth for one in turn]
            assert made == truth[: len(made)], task.id
            ended += 1
    assert ended > 5


def test_a_corruption_that_the_reward_does_not_see_is_not_taken():
    """One call stands for the other: losing either of them is no failure, so the third is what is spoiled."""
    task = file_task(((call("ls"),), (call("ls"),), (call("mkdir", dir_name="a"),)))
    for seed in range(20):
        texts, _ = corrupted(OFFICIAL, task, seed=seed)
        assert play_texts(OFFICIAL, task, texts).reward == 0.0
        assert call("mkdir", dir_name="a") not in calls_of(OFFICIAL, task, texts)


@pytest.mark.parametrize(
    "truth", [((),), ((call("mkdir", dir_name="a"),),), ((call("ls"),), (call("ls"),), (call("ls"),))]
)
def test_a_task_that_cannot_be_failed_is_named(truth):
    class Lenient(BfclEnvironment):
        def _outcome(self, scenario, transcript):
            outcome = super()._outcome(scenario, transcript)
            return type(outcome)(1.0, named=outcome.named)

    with pytest.raises(ValueError, match=r"task 'files'.* gave no failure"):
        corrupted(Lenient(), file_task(truth))


def test_texts_that_do_not_fit_the_task_are_refused():
    with pytest.raises(ValueError, match="after text 2 of 3 the episode is over"):
        play(OFFICIAL, file_task(), ["ok", "ok", "ok"])
    with pytest.raises(ValueError, match="no assistant text"):
        play(OFFICIAL, file_task(), [])


def test_a_conversation_that_breaks_off_is_played_as_truncated():
    class Seeing(BfclEnvironment):
        def score(self, task, transcripts):
            seen.extend(transcripts)
            return super().score(task, transcripts)

    seen = []
    played = play(Seeing(), file_task(), ["[mkdir('a')]"])
    assert (played.ends, played.outcome.reward) == (False, 0.0)
    roles = [message["role"] for message in played.messages]
    assert roles == ["system", "user", "assistant", "tool"]
    whole = play(Seeing(), file_task(), ["[mkdir('a')]", "ok", "[ls()]", "ok"])
    assert (whole.ends, whole.outcome.reward) == (True, 1.0)
    assert [message["content"] for message in whole.messages if message["role"] == "user"] == ["request 0", "request 1"]
    assert [(one.truncated, len(one.turns)) for one in seen] == [(True, 1), (False, 4)]
    assert [one.messages for one in seen] == [played.messages, whole.messages]
