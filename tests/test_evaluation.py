"""What an evaluation comes to: means over tasks, with intervals, by category and by fact; written if asked for."""

import functools
import json
from unittest import mock

import jax
import pytest

from rlagents import evaluate, sharding
from rlagents.evaluation import Evaluation, measured
from rlagents.facts import Outcome
from rlagents.intervals import wilson
from rlagents.metrics import read_lines, read_metrics
from rlagents.metrics.names import unknown
from tests.programs import started

HALF = [Outcome(1.0, named={"official": 1.0}), Outcome(0.0, named={"official": 1.0, "calls": 7.0})]
NONE = [Outcome(0.0, named={"official": 0.0, "calls": 3.0})] * 2


def evaluation(*tasks):
    return Evaluation(measured(tasks), {"easy": measured(tasks[:1]), "hard": measured(tasks[1:])}, 2, {}, [])


def test_means_are_over_tasks_of_the_mean_over_samples():
    found = measured([HALF, NONE, NONE])
    assert found.success == pytest.approx(1 / 6)
    assert found.named == pytest.approx({"calls": (7 + 3 + 3) / 3, "official": 1 / 3})
    assert found.num_tasks == 3
    assert found.interval == wilson(1 / 6, 3)
    # What is no share has no interval.
    assert found.bounds == {"official": wilson(1 / 3, 3), "calls": None}
    assert measured([[Outcome(2.0)], [Outcome(0.5)]]).interval is None


def test_a_log_has_all_of_it_under_known_names():
    values = evaluation(HALF, NONE).values()
    assert unknown("evaluations.jsonl", set(values)) == []
    assert (values["success_low"], values["success_high"]) == wilson(0.25, 2)
    assert (values["success_low/easy"], values["success_high/easy"]) == wilson(0.5, 1)
    assert (values["success/hard"], values["named/official"], values["tasks"]) == (0.0, 0.5, 2)
    beyond = Evaluation(measured([[Outcome(2.0)]]), {}, 1, {}, []).values()
    assert {name for name in beyond if name.startswith("success")} == {"success"}


def test_a_table_has_a_line_for_all_and_for_each_category():
    whole, easy, hard = evaluation(HALF, NONE).table()
    low, high = wilson(0.25, 2)
    assert whole.startswith(f"all      2 tasks  success 25.0% ({low:.1%} to {high:.1%})")
    assert easy.startswith("easy     1 tasks  success 50.0% (")
    assert "official 100.0% (" in easy
    assert "calls 3" in hard


@pytest.mark.usefixtures("no_processes")
def test_a_program_writes_numbers_and_conversations_into_a_new_folder_only(tmp_path):
    one = functools.partial(sharding.make_mesh, devices=jax.devices()[:1])
    workdir, output = tmp_path / "run", tmp_path / "evaluated"
    workdir.mkdir()
    options = ["--config=tests/smallest_run.py", f"--workdir={workdir}", f"--output={output}"]
    with mock.patch.object(sharding, "make_mesh", one):
        ended = started(evaluate, *options)
        assert (ended.code, ended.err) == (0, "")
        assert not list(workdir.iterdir())
        document = json.loads((output / "evaluation.json").read_text())
        (row,) = read_metrics(output / "evaluations.jsonl")
        assert document["all"]["success"] == {
            "mean": row["success"],
            "interval": [row["success_low"], row["success_high"]],
        }
        assert document["by_category"] == {"all": document["all"]}
        groups = list(read_lines(output / "held_out.jsonl"))
        assert len(groups) == row["tasks"] == 2
        assert "  all" in ended.out
        before = {path: path.read_bytes() for path in output.iterdir()}
        again = started(evaluate, *options)
    assert again.code == 2
    assert f"--output is {str(output)!r}; give a new folder" in again.err
    assert {path: path.read_bytes() for path in output.iterdir()} == before
