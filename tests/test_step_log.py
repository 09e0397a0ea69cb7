"""A step's line is written one step late, whole, and under its own number; alarms and the end of learning are told."""

import dataclasses
from collections import Counter

import numpy as np
import pytest

from rlagents.alarms import make_watch
from rlagents.facts import Outcome, TurnFacts
from rlagents.learner import NonFiniteError, StepReport
from rlagents.metrics import each_metrics, read_lines, read_metrics
from rlagents.metrics.run_log import RunLog
from rlagents.rollouts.collate import collate
from rlagents.rollouts.driver import Rollout, Skipped
from rlagents.step_log import Line, StepLog, rollout_values, skipped_lines
from rlagents.types import Kind, Mean
from tests.rollouts.test_collate import BUCKETS, trajectory


def report(step, *, nonfinite_in_a_row=0):
    return StepReport(
        step=np.int32(step),
        loss=np.float32(np.nan if nonfinite_in_a_row else step),
        gradient_norm=np.float32(1),
        learning_rate=np.float32(0.1),
        metrics={"clip": Mean(np.float32(step), np.float32(2))},
        counts={"tokens": np.int32(3)},
        applied=np.bool_(not nonfinite_in_a_row),
        empty=np.bool_(False),
        loss_finite=np.bool_(not nonfinite_in_a_row),
        gradient_finite={},
        nonfinite_in_a_row=np.int32(nonfinite_in_a_row),
        skipped=np.int32(0),
    )


def line(step, *reports):
    return Line(step, {"reward": float(step)}, reports, {"kept": Mean(np.float32(1), np.float32(4))})


def told(*_):
    raise AssertionError("there is nothing to tell")


def test_a_line_is_written_one_step_late(tmp_path):
    with RunLog(tmp_path, {}) as written_to:
        log = StepLog(written_to, make_watch(), told)
        written = []
        for step in range(3):
            log.put(line(step, report(2 * step), report(2 * step + 1)))
            written.append([row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")])
        assert written == [[], [0], [0, 1]]
        log.flush()
        log.flush()
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert {name: rows[1][name] for name in ("reward", "loss", "clip", "kept", "tokens")} == {
        "reward": 1.0,
        "loss": 2.5,
        "clip": 1.25,
        "kept": 0.25,
        "tokens": 6,
    }


@pytest.mark.parametrize("end", [lambda log: log.put(line(3, report(3))), lambda log: log.flush()])
def test_a_run_that_learns_no_more_stops_with_the_step_it_stopped_at(end, tmp_path):
    with RunLog(tmp_path, {}) as written_to:
        lines = []
        log = StepLog(written_to, make_watch(), lines.append)
        log.put(line(0, report(0), report(1, nonfinite_in_a_row=1)))
        # The third in a row is not the last of its step.
        log.put(line(1, report(2, nonfinite_in_a_row=2), report(3, nonfinite_in_a_row=3), report(4)))
        with pytest.raises(NonFiniteError, match="3 updates in a row were skipped, the last at step 3: the loss was"):
            end(log)
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [0]
    assert lines == ["alarm non_finite at step 0: loss is nan"]


def test_an_alarm_is_told_written_and_counted_and_after_a_resume_it_is_not_raised_again(tmp_path):
    lines = []

    def steps(first, last):
        with RunLog(tmp_path, {}, first_step=first) as written_to:
            watch = make_watch(stop=("ratio_exploded",))
            watch.replay(each_metrics(tmp_path / "metrics.jsonl"))
            log = StepLog(written_to, watch, lines.append)
            for step in range(first, last):
                values = {"policy_ratio_max": 100.0 if step in (1, 2) else 1.0}
                log.put(Line(step, values, (report(step),), {}))
            log.flush()
            return log.stopped

    def written():
        numbers = [(row["step"], row["alarms"], row["alarms/ratio_exploded"]) for row in rows()]
        return numbers, list(read_lines(tmp_path / "alarms.jsonl"))

    def rows():
        return read_metrics(tmp_path / "metrics.jsonl")

    stopped = steps(0, 4)
    assert stopped is not None
    assert (stopped.step, stopped.alarm) == (1, "ratio_exploded")
    assert lines == [str(stopped)]
    whole = written()
    said = {"step": 1, "alarm": "ratio_exploded", "value": 100.0, "threshold": 50.0, "message": stopped.message}
    assert whole == ([(0, 0, 0), (1, 1, 1), (2, 1, 1), (3, 0, 0)], [said])
    assert steps(2, 4) is None
    assert written() == whole
    assert steps(1, 4).step == 1
    assert written() == whole


def test_versions_behind_is_a_mean_over_sampled_tokens():
    parts = ((Kind.MODEL, 1), (Kind.TOOL, 4), (Kind.FORCED, 2), (Kind.MODEL, 3))
    group = [trajectory(0, 0, segments=parts, weight_versions=[4, 6]), trajectory(0, 1, weight_versions=[6])]
    batch = collate([group], **BUCKETS)

    def behind(group):
        values = rollout_values(Rollout([group], [], Counter(draws=1)), batch, version=7)
        assert (values["rollout/draws"], values["turns"]) == (1, 1.5)
        return values["rollout/versions_behind"]

    assert behind(group) == pytest.approx((3 + 3 * 1 + 2 * 1) / 6)
    assert behind([trajectory(0, 0, segments=parts), trajectory(0, 1)]) == 0.0


def test_shares_of_groups_and_turns_are_over_valid_members():
    def member(reward, *, lost=None, **turn):
        made = trajectory(0, 0, turn_facts=[TurnFacts(**turn)])
        return dataclasses.replace(made, outcome=None if lost else Outcome(reward), lost=lost)

    gone = {"lost": "no world", "void": True}
    groups = [
        [member(1.0), member(1.0, void=True), member(0.0, **gone)],  # equal, but for who is lost
        [member(1.0), member(0.5)],
        [member(0.0), member(0.0, **gone)],  # one alone is no group
    ]
    batch = collate([[trajectory()]], **BUCKETS)
    values = rollout_values(Rollout(groups, [], Counter()), batch, version=0)
    assert values["uniform_groups"] == 0.5
    assert values["garbled_turns"] == 0.2
    values = rollout_values(Rollout([[member(0.0, **gone)]], [], Counter()), batch, version=0)
    assert (values["uniform_groups"], values["garbled_turns"]) == (0.0, 0.0)


def test_tasks_that_are_left_out_are_told_with_the_reason_and_the_rest_counted():
    skipped = [Skipped(place, f"task {place}", "its prompt is too long") for place in range(5)]
    first = [f"step 8: task 'task {place}' is skipped: its prompt is too long" for place in range(3)]
    assert skipped_lines(7, skipped) == [*first, "step 8: 2 more tasks are skipped"]
    assert skipped_lines(7, skipped[:3]) == first
    assert skipped_lines(7, []) == []
