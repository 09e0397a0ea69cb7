"""The cost of a run holds the warm-up and every evaluation, whatever its logs time, and says what is left over."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlagents.report.cost import seconds_by_phase
from rlagents.report.reading import Run
from tests.report.reading import report
from tests.report.synthetic import write_run

SECONDS = st.floats(0, 1e6)


def run_of(metrics=(), warm_up=(), evaluations=()):
    return Run(
        "a",
        None,
        metrics=[{"step": step, **row} for step, row in enumerate(metrics)],
        warm_up=[{"step": step, **row} for step, row in enumerate(warm_up)],
        evaluations=list(evaluations),
    )


@given(
    st.lists(st.dictionaries(st.sampled_from(("rollout", "update", "log")), SECONDS), max_size=5),
    st.lists(SECONDS, max_size=5),
    st.lists(SECONDS, max_size=3),
    SECONDS,
)
def test_phases_and_what_is_left_over_are_all_the_time_that_passed(steps, warm_up, evaluations, start):
    """Up to the last evaluation, which comes after the last step."""
    passed = start + sum(sum(row.values()) for row in steps) + sum(warm_up)
    lines = []
    for number, seconds in enumerate(evaluations):
        passed += seconds
        lines.append({"step": len(steps), "seconds": seconds, "seconds_since_start": passed if number else 0.0})
    lines[-1:] = [lines[-1] | {"seconds_since_start": passed}] if lines else []
    run = run_of(
        [{f"seconds/{name}": value for name, value in row.items()} for row in steps],
        [{"seconds": value} for value in warm_up],
        lines,
    )
    found = seconds_by_phase(run)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert found.get("warm-up", 0.0) == pytest.approx(sum(warm_up), abs=1e-3)
    assert found.get("evaluation", 0.0) == pytest.approx(sum(evaluations), abs=1e-3)
    if lines:
        assert sum(found.values()) == pytest.approx(passed, abs=0.01)
        assert found.get("elsewhere", 0.0) == pytest.approx(start, abs=0.01)
    else:
        assert "elsewhere" not in found


def test_the_last_evaluation_counts_though_no_line_of_metrics_comes_after_it():
    evaluations = [{"step": step, "seconds": 12.0, "seconds_since_start": 1e3} for step in (0, 2)]
    run = run_of([{"seconds/evaluation": 12.0}, {"seconds/update": 1.0}], evaluations=evaluations)
    assert seconds_by_phase(run)["evaluation"] == 24.0


def test_of_older_logs_what_they_say_counts_and_the_rest_is_elsewhere():
    run = run_of(
        [{"seconds/evaluation": 12.0, "seconds/update": 5.0}, {"seconds/update": 5.0}],
        [{"loss": 1.0}],
        [{"step": 0, "seconds_since_start": 42.0}, {"step": 2, "seconds_since_start": 64.0}],
    )
    # 30 s of warm-up and start, 12 s of the last evaluation.
    assert seconds_by_phase(run) == {"elsewhere": 42.0, "evaluation": 12.0, "update": 10.0}


def test_steps_after_the_newest_evaluation_and_rollouts_beside_updates_are_no_part_of_what_is_left_over():
    rows = [{"seconds/update": 5.0, "seconds/rollout_ahead": 4.0}] * 2 + [{"seconds/update": 7.0}]
    run = run_of(rows, evaluations=[{"step": 2, "seconds": 1.0, "seconds_since_start": 14.0}])
    assert seconds_by_phase(run) == {"update": 17.0, "rollout_ahead": 8.0, "elsewhere": 3.0, "evaluation": 1.0}


@pytest.mark.parametrize("said", ["nan", "inf", -1.0, None, [], 1.7e308])
def test_a_time_that_is_none_breaks_nothing(said):
    rows = [{"seconds/update": said}, {"seconds/update": said}, {"seconds/update": 2.0}]
    found = seconds_by_phase(
        run_of(rows, [{"seconds": said}] * 2, [{"step": 3, "seconds": said, "seconds_since_start": said}])
    )
    assert all(math.isfinite(value) for value in found.values())
    assert found["update"] >= 2.0


def test_the_report_has_them_and_no_evaluation_takes_a_curve_of_the_steps(tmp_path):
    (run,) = report(write_run(tmp_path / "run", steps=10)).index["runs"]
    assert run["seconds"]["warm-up"] == 10.0
    assert run["seconds"]["evaluation"] == 36.0
    assert run["seconds"]["elsewhere"] > 0
    assert len(run["curves"]["seconds"]["x"]) == 10
    assert run["curves"]["evaluations/seconds"] == {"x": [0, 5, 10], "y": [12.0] * 3}
    assert "evaluations/tasks_skipped" in run["curves"]
    assert not [name for name in run["curves"] if "since_start" in name]
