"""A step's line is written one step late, whole, and under its own number; the end of learning is told in time."""

from collections import Counter

import numpy as np
import pytest

from rlagents.learner import NonFiniteError, StepReport
from rlagents.metrics import MetricsWriter, read_metrics
from rlagents.rollouts.collate import collate
from rlagents.rollouts.driver import Rollout
from rlagents.step_log import Line, StepLog, rollout_values
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


def test_a_line_is_written_one_step_late(tmp_path):
    with MetricsWriter(tmp_path / "m.jsonl") as writer:
        log = StepLog(writer)
        written = []
        for step in range(3):
            log.put(line(step, report(2 * step), report(2 * step + 1)))
            written.append([row["step"] for row in read_metrics(tmp_path / "m.jsonl")])
        assert written == [[], [0], [0, 1]]
        log.flush()
        log.flush()
    rows = read_metrics(tmp_path / "m.jsonl")
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
    with MetricsWriter(tmp_path / "m.jsonl") as writer:
        log = StepLog(writer)
        log.put(line(0, report(0), report(1, nonfinite_in_a_row=1)))
        # The third in a row is not the last of its step.
        log.put(line(1, report(2, nonfinite_in_a_row=2), report(3, nonfinite_in_a_row=3), report(4)))
        with pytest.raises(NonFiniteError, match="3 updates in a row were skipped, the last at step 3: the loss was"):
            end(log)
    assert [row["step"] for row in read_metrics(tmp_path / "m.jsonl")] == [0]


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
