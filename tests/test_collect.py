"""The command that writes both datasets, from its command line to what a warm-up reads."""

from collections import Counter

import pytest

from experiments.rc_grpo import collect
from rlagents.data.demonstrations import EXPERT, POLICY, SCRIPTED, read_demonstrations
from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_procedural import TRAIN, ProceduralTasks, procedural_environment
from rlagents.environments.bfcl_split import official_category, split_by_number
from rlagents.environments.bfcl_tasks import CATEGORIES, official_tasks
from rlagents.environments.bfcl_turns import MergedTurns
from rlagents.facts import Task
from rlagents.recorded import Recorded
from rlagents.rollouts.conditions import HIGH, LOW
from tests.programs import started

SIDES = ("train", "test")
ID = {task.id: task for category in CATEGORIES for task in official_tasks(category)}
NUMBER = {name: int(name.rpartition("_")[2]) for name in ID}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    ended = started(collect, f"--output={folder}", "--seed=3")
    assert (ended.code, ended.err) == (0, "")
    return folder, ended.out


def test_one_command_writes_both_datasets(written):
    folder, out = written
    assert out.count("rows (expert") == 4
    sides = {name: {side: read_demonstrations(folder, name, side) for side in SIDES} for name in ("rctp", "sft")}
    assert {name: [len(sides[name][side]) for side in SIDES] for name in sides} == {
        "rctp": [1440, 160],
        "sft": [720, 80],
    }
    for side, of_each in (("train", 180), ("test", 20)):
        rctp, sft = sides["rctp"][side], sides["sft"][side]
        assert Counter(row.category for row in sft) == dict.fromkeys(CATEGORIES, of_each)
        assert Counter((row.condition, row.source) for row in rctp) == {
            (HIGH, EXPERT): 4 * of_each,
            (LOW, SCRIPTED): 4 * of_each,
        }
        assert {(row.condition, row.source) for row in sft} == {(-1, EXPERT)}
        assert all((row.cause == "") == (row.source == EXPERT) for row in rctp)
        assert {row.task_id for row in rctp} == {row.task_id for row in sft}
    numbers = [{NUMBER[row.task_id] for name in sides for row in sides[name][side]} for side in SIDES]
    assert not numbers[0] & numbers[1]
    split = split_by_number(list(ID.values()), seed=3)
    assert {row.task_id for row in sides["sft"]["test"]} == {task.id for task in split.test}


def test_what_it_writes_can_be_imitated_in_the_environment_it_was_asked_for(written):
    folder, _ = written
    rows = read_demonstrations(folder, "rctp", "test")
    recorded = Recorded(rows, ID, BfclEnvironment(turns=MergedTurns()))
    assert len(recorded.stream(0).take(len(recorded))) == 160
    with pytest.raises(ValueError, match="played otherwise"):
        Recorded(rows, ID, BfclEnvironment()).stream(0)


def test_a_seed_is_one_pair_of_datasets(written):
    environment, split = BfclEnvironment(turns=MergedTurns()), split_by_number(list(ID.values()), seed=3)
    again = collect.collected(environment, split, [], seed=3)
    for name, sides in again.items():
        for side, rows in sides.items():
            assert tuple(rows) == read_demonstrations(written[0], name, side)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--categories=bases",), "unknown category 'bases'"),
        (("--workdir=runs/a",), "both --config and --workdir"),
        (("--config=experiments/quickstart/procedural.py",), "both --config and --workdir"),
        (("rest",), "unknown arguments rest"),
    ],
)
def test_what_cannot_be_done_is_told_with_exit_code_2(tmp_path, options, says):
    ended = started(collect, f"--output={tmp_path}", *options)
    assert ended.code == 2
    assert says in ended.err
    assert not list(tmp_path.iterdir())


def test_a_dataset_that_is_there_is_never_replaced(written):
    ended = started(collect, f"--output={written[0]}")
    assert ended.code == 2
    assert "is there already" in ended.err


SMALL = {
    "model.embed_dim": 16,
    "model.mlp_dim": 32,
    "model.num_layers": 1,
    "model.num_heads": 2,
    "model.num_kv_heads": 1,
    "model.head_dim": 8,
    "mesh.data": 8,
    "supervised.steps": 0,
    "evaluation.limits.max_turns": 6,
    "evaluation.limits.max_response_tokens": 63,
    "sampler.num_groups": 8,
    "sampler.num_rows": 32,
    "sampler.decode_rows": 32,
    "sampler.extend_rows": 32,
    "sampler.max_member_tokens": 64,
    "sampler.prefill_groups": 8,
    "compilation_cache": "''",
}


def test_failures_of_a_run_s_policy_are_taken_first(tmp_path, monkeypatch, no_processes):
    """A policy of random weights: it says nothing that could be a call, and so ends early, if it is not cut short."""
    generated = ProceduralTasks(TRAIN, levels=(1,))
    tasks = tuple(Task(f"multi_turn_base_{number}", generated[number].payload) for number in range(20))
    monkeypatch.setattr(collect, "official_tasks", lambda category: tasks)
    run = tmp_path / "run"
    run.mkdir()
    ended = started(
        collect,
        f"--output={tmp_path / 'sets'}",
        "--categories=base",
        "--config=experiments/quickstart/procedural.py",
        f"--workdir={run}",
        "--step=0",
        "--samples=4",
        *(f"--config.{name}={value}" for name, value in SMALL.items()),
    )
    assert ended.code == 0, ended.err
    assert "rollouts after 0 steps of RL" in ended.out
    rows = [row for side in SIDES for row in read_demonstrations(tmp_path / "sets", "rctp", side)]
    sources = Counter(row.source for row in rows)
    assert sources[EXPERT] == 20
    assert sources[POLICY] + sources[SCRIPTED] == 20
    assert sources[POLICY] > 0
    by_id = {task.id: task for task in tasks}
    assert len(Recorded(rows, by_id, procedural_environment()).stream(0).take(40)) == 40
    assert {official_category(by_id[row.task_id]) for row in rows} == {"base"}
