"""Which demonstrations a warm-up shows, and when."""

import dataclasses
import itertools
import types

import numpy as np
import pytest

from experiments.quickstart import procedural
from rlagents.data.streams import endless
from rlagents.experiment_checks import check_demonstrations
from rlagents.facts import Task
from rlagents.rollouts.conditions import HIGH, LOW, goal_messages, unconditioned
from rlagents.rollouts.experts import Demonstration, complete, first_then
from rlagents.sharding import single_device_mesh
from rlagents.types import Kind
from rlagents.warm_up import Traces, trace_batches


@pytest.fixture(scope="module")
def experiment():
    """The quickstart's, with two lessons that can be told apart by the number of turns."""
    config = procedural.get_config()
    config.train_levels = (2,)
    whole = procedural.build(config)
    expert = whole.environment.expert

    def first_turn(task, step):
        return Demonstration(expert(task)[0], ends=False)

    return dataclasses.replace(whole, demonstrate=first_then(complete(expert), first_turn, first_steps=2))


def test_a_trace_is_written_once_for_each_lesson(experiment):
    traces = Traces(experiment, 3)
    early = traces.shown(1, 0)
    assert traces.shown(1, 1) is early
    late = traces.shown(1, 2)
    assert traces.shown(1, 9) is late
    assert (early.truncated, late.truncated) == (False, True)
    assert early.token_ids[: len(late.token_ids)] == late.token_ids
    assert len(early.token_ids) > len(late.token_ids)
    assert traces.shown(1, 0).token_ids == early.token_ids


def test_the_second_lesson_begins_with_its_window_wherever_a_run_resumed(experiment):
    config = procedural.get_config()
    config.supervised.update({"traces": 12, "prompts_per_step": 4, "batches_per_window": 2})
    machinery = types.SimpleNamespace(config=config, experiment=experiment, mesh=single_device_mesh())
    batches = list(itertools.islice(trace_batches(machinery, 0), 8))
    turns = [np.max(np.asarray(batch.masks.turn)[np.asarray(batch.masks.kind) == Kind.MODEL]) for batch in batches]
    assert min(turns[:2]) >= 3 > max(turns[2:])
    for position in range(1, 8):
        resumed = next(trace_batches(machinery, position))
        np.testing.assert_array_equal(resumed.sequences.tokens, batches[position].sequences.tokens)


def test_tasks_of_the_warm_up_may_be_others_and_shown_with_a_condition(experiment):
    def successes_and_failures(position):
        return endless(
            [Task(name, experiment.train_stream(0)[0].payload) for name in ("low", "high")], position=position
        )

    def labelled(task, step):
        texts = experiment.environment.expert(task)[0]
        return Demonstration(texts, ends=False, condition=HIGH if task.id == "high" else LOW)

    asked = dataclasses.replace(
        experiment,
        demonstrate=labelled,
        supervised_stream=successes_and_failures,
        demonstrated_messages=goal_messages(literals=("-", "+")),
    )
    traces = Traces(asked, 2)
    low, high = (traces.shown(index, 0) for index in range(2))
    assert [(trace.task_id, trace.condition) for trace in (low, high)] == [("low", LOW), ("high", HIGH)]
    said = [
        next(message["content"] for message in trace.messages if message["role"] == "user") for trace in (low, high)
    ]
    assert [text.rpartition("\n")[2] for text in said] == ["[Reward Goal: -]", "[Reward Goal: +]"]
    config = procedural.get_config()
    check_demonstrations(config, asked)
    with pytest.raises(ValueError, match=r"demonstrate of build.* has condition 0, and nothing says how it is shown"):
        check_demonstrations(config, dataclasses.replace(asked, demonstrated_messages=unconditioned))


def test_a_warm_up_without_traces_is_refused(experiment):
    with pytest.raises(ValueError, match="at least one trace"):
        Traces(experiment, 0)
