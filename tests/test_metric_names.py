"""One table says what every metric is: nothing is written under a name that it does not have, and it has no other."""

import functools
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from rlagents.alarms import ALARM_NAMES, make_watch
from rlagents.metrics import names
from rlagents.rollouts.faults import ToolFault
from tests.methods.batches import make_batch
from tests.methods.harness import whole
from tests.methods.table import METHODS

ROOT = Path(__file__).resolve().parents[1]
BATCH = make_batch(5, (4, 4, 10, 3), rewards="binary", invalid=0.1, spread=0.3)
OF_THE_TESTS = {"softened", "distance", "weight"}
"""What stages of the tests themselves report."""


@pytest.fixture(scope="module")
def reported():
    """Names that all recipes and stages of the library report."""
    found = set()
    for method in METHODS.values():
        found |= jax.eval_shape(functools.partial(whole, method), *BATCH).metrics.keys()
    return found


def test_all_that_stages_report_is_in_the_table(reported):
    assert set(names.unknown("metrics.jsonl", reported)) <= OF_THE_TESTS
    assert names.unknown("metrics.jsonl", {"part/inner/clip_fraction", "muted/failed_tools"}) == []


def test_the_table_has_no_stage_metric_that_nothing_reports(reported):
    lone = [entry.name for entry in names.STAGES if not any(names.describes(entry, name) for name in reported)]
    assert lone == []


def test_what_is_not_in_the_table_is_found():
    wrong = {"step", "loss", "losss", "xreward", "seconds/", "alarms/x", "success", "rollout/draws/x", "a/loss"}
    assert names.unknown("metrics.jsonl", wrong) == [
        "a/loss",
        "losss",
        "rollout/draws/x",
        "seconds/",
        "success",
        "xreward",
    ]
    assert names.unknown("evaluations.jsonl", {"success/level 1", "loss"}) == ["loss"]


def test_alarms_and_faults_of_tools_are_in_the_table():
    assert names.unknown("metrics.jsonl", set(make_watch().counted())) == []
    assert names.unknown("metrics.jsonl", {f"rollout/tool_{fault.value}" for fault in ToolFault}) == []
    assert {f"alarms/{name}" for name in ALARM_NAMES} < make_watch().counted().keys()


def test_every_name_stands_once_with_a_meaning():
    for part in (names.STEP + names.ROLLOUT + names.STAGES + names.ALARMS, names.EVALUATION):
        assert len({entry.name for entry in part}) == len(part)
        assert all(entry.meaning for entry in part)


def test_the_table_is_printed_in_markdown():
    done = subprocess.run(
        [sys.executable, "-m", "rlagents.metrics.names"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[:2] == ["| metric | unit | meaning |", "| --- | --- | --- |"]
    assert all(line.count("|") == 4 for line in lines)
    assert "| `entropy` | nats | of the policy, mean over trained tokens |" in lines
