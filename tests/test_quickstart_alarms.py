"""No alarm goes on in the quickstart: in one that was recorded and, in a full run of the tests, in one run for it.

``tests/recorded/quickstart_metrics.jsonl`` is what the alarms look at of seed 0 (``bash launch/quickstart.sh``).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlagents.alarms import make_watch
from rlagents.metrics import read_lines, read_metrics
from tests.effort import draws

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "tests" / "recorded" / "quickstart_metrics.jsonl"


def raised(rows, **options):
    watch = make_watch(**options)
    return [str(one) for row in rows for one in watch.observe(row["step"], row)]


def test_none_goes_on_in_a_recorded_quickstart():
    rows = read_metrics(RECORDED)
    assert len(rows) == 36
    assert raised(rows) == []


def test_bounds_are_not_so_wide_that_nothing_could_go_on():
    """Three times closer, they would still be silent; twenty times closer, nearly all would speak."""
    rows = read_metrics(RECORDED)
    bounds = {"max_gradient_norm": 1000.0, "max_gradient_norm_growth": 30.0, "min_entropy": 1e-3}
    closer = {name: bound * (3 if name == "min_entropy" else 1 / 3) for name, bound in bounds.items()}
    assert raised(rows, **closer, max_garbled_turns=0.5 / 3, equal_rewards_steps=3, gradient_norm_floor=0.3) == []
    closest = {"min_entropy": 0.02, "max_garbled_turns": 0.025, "max_gradient_norm": 0.5}
    assert {line.split()[1] for line in raised(rows, **closest, patience=1)} == {
        "entropy_collapsed",
        "format_collapsed",
        "gradient_norm_exploded",
    }


@pytest.mark.skipif(draws(1) == 1, reason="takes minutes: RLAGENTS_TEST_EFFORT > 1 runs it")
def test_none_goes_on_in_the_quickstart(tmp_path):
    options = ["--config=experiments/quickstart/procedural.py", f"--workdir={tmp_path / 'run'}"]
    options += ["--config.evaluation.num_tasks=12"]
    one_device = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-m", "rlagents.train", *options]
    subprocess.run(command, cwd=ROOT, check=True, timeout=3000, env=one_device)
    assert len(read_metrics(tmp_path / "run" / "metrics.jsonl")) == 36
    assert list(read_lines(tmp_path / "run" / "alarms.jsonl")) == []
