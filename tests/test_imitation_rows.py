"""Rows of experts and failures: all of them replay, none crosses a split, and a seed is one choice."""

import dataclasses
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.data.demonstrations import EXPERT, POLICY, SCRIPTED, DemonstrationRow
from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_failures import cause_in
from rlagents.environments.bfcl_procedural import TRAIN, ProceduralTasks, procedural_environment
from rlagents.environments.bfcl_tasks import CATEGORIES, official_tasks, scenario_of
from rlagents.environments.replay import play
from rlagents.facts import Task
from rlagents.imitation_rows import balanced, expert_rows, policy_rows, rctp_rows, scripted_rows, sft_rows
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.conditions import HIGH, LOW
from rlagents.rollouts.driver import StreamTask, rollout
from rlagents.rollouts.local_pool import LocalPool
from rlagents.rollouts.members import Limits
from tests.effort import draws
from tests.environments.small_tasks import call, file_task
from tests.rollouts.fakes import FakeSampler
from tests.rollouts.tiny import CHATML, tokenizer

ENVIRONMENT = BfclEnvironment()
LIMITS = Limits(max_turns=6, max_turn_tokens=60, max_response_tokens=3000, max_prompt_tokens=100_000)


def category(task):
    return task.id.partition("-")[0]


def file_tasks(count):
    return [Task(f"files-{number}", file_task().payload) for number in range(count)]


@pytest.mark.parametrize("name", CATEGORIES)
def test_every_official_expert_is_a_row(name):
    tasks = official_tasks(name)
    rows = expert_rows(ENVIRONMENT, tasks, category)
    assert [row.task_id for row in rows] == [task.id for task in tasks]
    assert {(row.cause, row.source, row.condition, row.ends) for row in rows} == {("", EXPERT, -1, True)}
    for row, task in list(zip(rows, tasks))[::20]:
        assert list(row.texts) == [text for turn in ENVIRONMENT.expert(task) for text in turn]


def test_generated_tasks_give_rows_alike():
    environment, tasks = procedural_environment(), ProceduralTasks(TRAIN, levels=(1, 2))
    some = [tasks[index] for index in range(30)]
    experts, failures = expert_rows(environment, some, category), scripted_rows(environment, some, category, seed=0)
    assert len(rctp_rows(experts, balanced(experts, failures, seed=0), seed=0)) == 60
    assert all(play(environment, task, row.texts).outcome.reward == 0.0 for task, row in zip(some, failures))


UNKNOWN_TOOL, WRONG_STATE = call("nope"), {"GorillaFileSystem": {"root": 3}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"truth": ((UNKNOWN_TOOL,), ())}, r"earns the reward 0 .*failed/"),
        ({"truth": ((call("mkdir", dir_name="a", nothing=1),) * 2, ()), "classes": ("Nobody",)}, "unknown back-end"),
        ({"initial_config": WRONG_STATE}, r"\(\w+: "),
    ],
)
def test_a_ground_truth_that_does_not_replay_is_named(change, says):
    scenario = dataclasses.replace(scenario_of(file_task()), **change)
    with pytest.raises(ValueError, match=f"ground truth of task 'broken' does not replay.*{says}"):
        expert_rows(ENVIRONMENT, [file_task(), Task("broken", {"scenario": scenario})], category)


# What the members of every group say; all fail but the first.
SOLVED = ["[mkdir('a')]", "ok", "[ls()]", "ok"]
SAID = [
    SOLVED,
    ["[mkdir('b')]", "ok", "[ls()]", "ok"],
    ["[mkdir('b')]", "ok", "[ls()]", "ok"],  # the same once more
    ["ok", "[ls()]", "ok"],
    ["[pwd()]"] * 6,  # the limit of turns
    ["[mkdir('a')]", "ok", "[ls()]", "x" * 300],  # a turn that is cut
]


def rollouts(tasks, said=SAID):
    chat = Chat(tokenizer(), CHATML)
    sampler = FakeSampler(
        chat, lambda stream, member, turn: said[member][turn], num_rows=len(said), max_member_tokens=100_000
    )
    return rollout(
        [StreamTask(index, task) for index, task in enumerate(tasks)],
        sampler=sampler,
        chat=chat,
        pool=LocalPool(ENVIRONMENT),
        group_size=len(said),
        limits=LIMITS,
        run=0,
        step=0,
    ).groups


def test_a_policy_s_failures_are_taken_once_with_their_cause():
    tasks = file_tasks(2)
    groups, known = rollouts(tasks), {task.id: task for task in tasks}
    assert [member.outcome.reward for member in groups[0]] == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    rows = policy_rows(groups, ENVIRONMENT, known, category)
    assert [(row.task_id, row.cause, list(row.texts), row.ends) for row in rows] == [
        (task.id, cause, SAID[member], True)
        for task in tasks
        for member, cause in ((1, "wrong_arguments"), (3, "premature_end"))
    ]
    assert {(row.source, row.condition, row.category) for row in rows} == {(POLICY, -1, "files")}
    every = policy_rows(groups, ENVIRONMENT, known, category, without=())
    cut = [row for row in every if row.cause == "cut_short"]
    assert [list(row.texts) for row in cut] == [SAID[4], SAID[5][:3]] * 2  # whole turns alone
    assert not any(row.ends for row in cut)
    for row in every:
        played = play(ENVIRONMENT, known[row.task_id], row.texts)
        assert (played.outcome.reward, cause_in(played.outcome), played.ends) == (0.0, row.cause, row.ends)


def test_what_is_nobody_s_mistake_is_no_failure():
    (task,) = file_tasks(1)
    (group,) = rollouts([task])
    lost = dataclasses.replace(group[1], outcome=None, lost="its worker died")
    # A tool that was slow when it was sampled, and is not when it is played again.
    slow = dataclasses.replace(group[0], outcome=dataclasses.replace(group[0].outcome, reward=0.0))
    assert policy_rows([[lost, slow]], ENVIRONMENT, {task.id: task}, category) == []
    assert policy_rows([], ENVIRONMENT, {}, category) == []
    with pytest.raises(ValueError, match="of task 'files-0', which is none of the 0 tasks"):
        policy_rows([group], ENVIRONMENT, {}, category)


def row(task, text, source=POLICY):
    return DemonstrationRow(f"t{task}", "c", -1, "" if source == EXPERT else "wrong_tool", source, (text,), True)


EXPERTS = [row(task, "right", EXPERT) for task in range(5)]
FAILURES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 4)), max_size=20, unique=True)


@settings(max_examples=draws(300), deadline=None)
@given(FAILURES, st.integers(0, 3), st.randoms())
def test_failures_are_as_many_as_experts_and_spread_over_their_tasks(pairs, seed, source):
    failures = [row(task, str(text)) for task, text in pairs]
    fill = [row(task, "scripted", SCRIPTED) for task in range(5)]
    own = [one for one in failures if one.task_id in {expert.task_id for expert in EXPERTS}]
    chosen = balanced(EXPERTS, failures, seed=seed, fill=fill)
    assert len(chosen) == len(set(chosen)) == len(EXPERTS)
    assert {one.task_id for one in chosen} <= {expert.task_id for expert in EXPERTS}
    by_policy = [one for one in chosen if one.source == POLICY]
    assert len(by_policy) == min(len(own), len(EXPERTS))
    # No task gives a second failure before each that has any gave its first; what is filled goes where there is none.
    counts, there = Counter(one.task_id for one in by_policy), Counter(one.task_id for one in own)
    for task, most in counts.items():
        assert all(counts[other] >= min(most - 1, there[other]) for other in there), task
    filled = {one.task_id for one in chosen if one.source == SCRIPTED}
    without = {expert.task_id for expert in EXPERTS} - counts.keys()
    assert filled <= without or without <= filled
    assert balanced(EXPERTS, source.sample(failures, len(failures)), seed=seed, fill=fill) == chosen


def test_another_seed_is_another_choice():
    failures = [row(task, str(text)) for task in range(5) for text in range(20)]
    assert balanced(EXPERTS, failures, seed=0) != balanced(EXPERTS, failures, seed=1)


@pytest.mark.parametrize(("count", "says"), [(0, "0 different failures for 5 .* 5 have none"), (3, "3 .* 2 have none")])
def test_too_few_failures_are_told(count, says):
    with pytest.raises(ValueError, match=says):
        balanced(EXPERTS, [row(task, "wrong") for task in range(count)], seed=0)


def test_both_datasets_hold_the_same_experts_in_one_order():
    failures = [row(task, "wrong") for task in range(5)]
    rctp, sft = rctp_rows(EXPERTS, failures, seed=4), sft_rows(EXPERTS, seed=4)
    assert [one.condition for one in rctp] == [HIGH, LOW] * 5
    assert [one.source for one in rctp] == [EXPERT, POLICY] * 5
    assert [dataclasses.replace(one, condition=-1) for one in rctp[::2]] == sft
    assert sorted(one.task_id for one in sft) == sorted(one.task_id for one in EXPERTS)
    assert [one.task_id for one in rctp[::2]] != [one.task_id for one in rctp[1::2]]
    mixed = random.Random(1).sample(EXPERTS, 5)
    assert rctp_rows(mixed, failures[::-1], seed=4) == rctp
    assert sft_rows(EXPERTS, seed=5) != sft
    with pytest.raises(ValueError, match="5 experts and 4 failures"):
        rctp_rows(EXPERTS, failures[:4], seed=0)
