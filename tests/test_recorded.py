"""Rows of a dataset in the warm-up: what was written is what is imitated, with its condition, or an error says why."""

import dataclasses
import itertools
import types

import numpy as np
import pytest

from experiments.quickstart import procedural
from rlagents.data.demonstrations import read_demonstrations, write_demonstrations
from rlagents.environments.bfcl_procedural import TRAIN, ProceduralTasks
from rlagents.environments.bfcl_turns import MergedTurns
from rlagents.experiment_checks import check_demonstrations
from rlagents.imitation_rows import balanced, expert_rows, rctp_rows, scripted_rows, sft_rows
from rlagents.recorded import Recorded, demonstrated
from rlagents.rollouts.conditions import HIGH, LOW, goal_messages
from rlagents.sharding import single_device_mesh
from rlagents.types import Kind
from rlagents.warm_up import Traces, trace_batches
from tests.test_train import small_config

TASKS = ProceduralTasks(TRAIN, levels=(1, 2), seed=3)
TASKS_BY_ID = {TASKS[index].id: TASKS[index] for index in range(8)}


def rows_of(environment):
    tasks = list(TASKS_BY_ID.values())
    experts = expert_rows(environment, tasks, procedural.level_of)
    failures = scripted_rows(environment, tasks, procedural.level_of, seed=0)
    return rctp_rows(experts, balanced(experts, failures, seed=0), seed=0), sft_rows(experts, seed=0)


@pytest.fixture(scope="module")
def plain():
    return procedural.build(small_config())


@pytest.fixture(scope="module")
def folder(tmp_path_factory, plain):
    written, (rctp, sft) = tmp_path_factory.mktemp("sets"), rows_of(plain.environment)
    write_demonstrations(written, "rctp", {"train": rctp})
    write_demonstrations(written, "sft", {"train": sft})
    return written


def taught(plain, folder, name):
    rows = read_demonstrations(folder, name, "train")
    recorded = Recorded(rows, TASKS_BY_ID, plain.environment)
    return rows, dataclasses.replace(
        plain,
        demonstrate=demonstrated,
        supervised_stream=recorded.stream,
        demonstrated_messages=goal_messages(literals=("-", "+")),
    )


@pytest.mark.parametrize("name", ["rctp", "sft"])
def test_a_warm_up_imitates_what_was_written(plain, folder, name):
    rows, experiment = taught(plain, folder, name)
    traces = Traces(experiment, len(rows))
    for index, row in enumerate(rows):
        trace = traces.shown(index, 7)
        said = [message["content"] for message in trace.messages if message["role"] == "assistant"]
        assert (said, trace.condition, trace.truncated) == (list(row.texts), row.condition, False)
        assert trace.outcome.reward == (0.0 if row.cause else 1.0)
        assert not row.cause or trace.outcome.named[f"failed/{row.cause}"] == 1.0
        model = [token for token, kind in zip(trace.token_ids, trace.kinds) if kind == Kind.MODEL]
        stop = experiment.chat.decode(experiment.chat.closing_ids[:1])
        assert experiment.chat.decode(model) == "".join(f"{text}{stop}" for text in row.texts)
        asked = next(message["content"] for message in trace.messages if message["role"] == "user")
        assert asked.endswith({HIGH: "\n[Reward Goal: +]", LOW: "\n[Reward Goal: -]", -1: "."}[row.condition])
    assert {row.condition for row in rows} == ({HIGH, LOW} if name == "rctp" else {-1})
    check_demonstrations(small_config(), experiment)


def test_batches_are_the_same_wherever_a_run_resumed(plain, folder):
    config = small_config()
    config.supervised.update({"traces": 16, "prompts_per_step": 4})
    config.trace_buckets.update({"prefix_buckets": (160,), "member_buckets": (192,), "turn_buckets": (14,)})

    def machinery():
        _, again = taught(plain, folder, "rctp")
        return types.SimpleNamespace(config=config, experiment=again, mesh=single_device_mesh())

    batches = list(itertools.islice(trace_batches(machinery(), 0), 6))
    assert {int(one) for batch in batches for one in np.asarray(batch.masks.condition).ravel()} == {HIGH, LOW}
    for position in (1, 4):
        resumed = next(trace_batches(machinery(), position))
        np.testing.assert_array_equal(resumed.sequences.tokens, batches[position].sequences.tokens)


def test_a_stream_is_the_dataset_again_and_again(plain, folder):
    rows, experiment = taught(plain, folder, "sft")
    stream = experiment.supervised_stream(0)
    ids = [stream[index].id for index in range(2 * len(rows))]
    assert ids[: len(rows)] == ids[len(rows) :]
    assert len(set(ids)) == len(rows)
    assert experiment.supervised_stream(3).take(1)[0][1].id == ids[3]


def test_rows_that_are_too_long_for_the_buckets_are_left_out(plain, folder):
    rows, experiment = taught(plain, folder, "rctp")
    recorded, shown = Recorded(rows, TASKS_BY_ID, plain.environment), experiment.demonstrated_messages
    traces = Traces(experiment, len(rows))
    sizes = [
        (len(one.prompt_ids), len(one.token_ids)) for one in (traces.shown(index, 0) for index in range(len(rows)))
    ]
    prompt, response = (sorted(lengths)[len(rows) // 2] for lengths in zip(*sizes))
    for limits in ((prompt, 10_000), (10_000, response), (prompt, response), (10_000, 10_000)):
        left = recorded.fitting(experiment.chat, shown, max_prompt_tokens=limits[0], max_response_tokens=limits[1])
        assert list(left.rows) == [
            row for row, size in zip(rows, sizes) if size[0] <= limits[0] and size[1] <= limits[1]
        ]
        assert [task.payload["demonstration"].texts for task in left.replayed] == [row.texts for row in left.rows]
    with pytest.raises(ValueError, match="none of 16 recorded demonstrations has a prompt of 3 tokens or less"):
        recorded.fitting(experiment.chat, shown, max_prompt_tokens=3, max_response_tokens=10_000)


def test_rows_of_another_environment_are_refused(plain, folder):
    rows = read_demonstrations(folder, "rctp", "train")
    merged = dataclasses.replace(plain.environment, turns=MergedTurns())
    with pytest.raises(ValueError, match=r"row \d+ \(task 'procedural-.*played otherwise.*Was the dataset made for"):
        Recorded(rows, TASKS_BY_ID, merged).stream(0)


def test_rows_that_are_not_what_they_say_are_refused(plain, folder):
    solved, failed = read_demonstrations(folder, "rctp", "train")[:2]
    for wrong, says in (
        (dataclasses.replace(solved, cause="wrong_tool"), "it earns 1, and its episode is over"),
        (dataclasses.replace(failed, cause=""), "it earns 0, and its episode is over"),
        (dataclasses.replace(failed, ends=False), "its episode is over"),
        (dataclasses.replace(solved, texts=solved.texts[:-1]), "its episode is not over"),
        (dataclasses.replace(solved, texts=("done.",) * 20), "ValueError: .* the episode is over"),
    ):
        with pytest.raises(ValueError, match=f"row 1 .* is played otherwise than it was recorded: .*{says}"):
            Recorded([solved, wrong], TASKS_BY_ID, plain.environment).stream(0)
    with pytest.raises(ValueError, match=r"row 0 is of task .* none of the 0 tasks"):
        Recorded([solved], {}, plain.environment).stream(0)
    with pytest.raises(ValueError, match="no recorded demonstrations"):
        Recorded([], {}, plain.environment).stream(0)


def test_a_task_that_nothing_was_recorded_for_is_refused():
    with pytest.raises(ValueError, match="nothing was recorded for task 'procedural-train-3-1-0'"):
        demonstrated(TASKS[0], 0)
