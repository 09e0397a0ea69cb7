"""A metrics file survives whatever is written to it and whatever cuts it off; the terminal line says what matters."""

import io
import json
import math
import re
import time

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.metrics import MetricsWriter, read_metrics
from rlagents.progress import PlainProgress, RichProgress, clock, progress
from rlagents.timing import OneStepLate, PhaseTimer
from tests.effort import draws

numbers = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**60), 2**60)


@given(st.lists(st.dictionaries(st.text(min_size=1).filter(lambda k: k != "step"), numbers), max_size=4))
@settings(deadline=None, max_examples=draws(30))
def test_whatever_is_written_is_json_and_comes_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("metrics") / "deep" / "metrics.jsonl"
    with MetricsWriter(path) as writer:
        for step, row in enumerate(rows):
            writer.write(step, row)

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    for line in path.read_text(encoding="utf-8").splitlines():
        json.loads(line, parse_constant=refuse)
    for step, (row, back) in enumerate(zip(rows, read_metrics(path), strict=True)):
        assert back.pop("step") == step
        assert back.keys() == row.keys()
        assert all(back[k] == v or (math.isnan(back[k]) and math.isnan(v)) for k, v in row.items())


def test_lines_are_there_before_the_file_is_closed(tmp_path):
    writer = MetricsWriter(tmp_path / "m.jsonl")
    writer.write(
        0, {"loss": jnp.float32(0.5), "count": np.int64(3), "flag": np.bool_(True), "bad": jnp.float32(jnp.nan)}
    )
    assert (tmp_path / "m.jsonl").read_text() == '{"step": 0, "loss": 0.5, "count": 3, "flag": 1, "bad": "nan"}\n'
    writer.close()


def test_a_resumed_run_continues_where_its_checkpoint_was(tmp_path):
    """Steps after the checkpoint will be made again, and a line cut short by a kill must not swallow the next."""
    path = tmp_path / "m.jsonl"
    with MetricsWriter(path) as writer:
        for step in range(4):
            writer.write(step, {"loss": step})
    path.write_text(path.read_text() + '{"step": 4, "lo')
    assert [row["step"] for row in read_metrics(path)] == [0, 1, 2, 3]
    with MetricsWriter(path, first_step=2) as writer:
        writer.write(2, {"loss": -1})
    assert read_metrics(path) == [{"step": 0, "loss": 0}, {"step": 1, "loss": 1}, {"step": 2, "loss": -1}]
    assert [p.name for p in tmp_path.iterdir()] == ["m.jsonl"]


def test_what_is_no_number_is_refused(tmp_path):
    with MetricsWriter(tmp_path / "m.jsonl") as writer:
        with pytest.raises(ValueError, match="metric 'a' must be one number"):
            writer.write(0, {"a": np.zeros(2)})
        with pytest.raises(ValueError, match="metric 'a' must be one number"):
            writer.write(0, {"a": "many"})
        with pytest.raises(ValueError, match="may not be called 'step'"):
            writer.write(0, {"step": 1})
    assert read_metrics(tmp_path / "m.jsonl") == []


def test_one_step_late():
    late = OneStepLate[int]()
    assert [late.put(1), late.put(2), late.last(), late.last()] == [None, 1, 2, None]


def test_phases_add_up_and_start_again():
    timer = PhaseTimer()
    for _ in range(2):
        with timer.phase("rollout"):
            time.sleep(0.02)
    with pytest.raises(RuntimeError), timer.phase("step"):
        raise RuntimeError
    taken = timer.take()
    assert list(taken) == ["seconds/rollout", "seconds/step"]
    assert 0.04 <= taken["seconds/rollout"] < 1
    assert timer.take() == {}
    with timer.phase("step"):
        time.sleep(0.1)
    # The table goes over everything since the start, taken or not, the largest first.
    first, second = timer.table().splitlines()
    assert re.fullmatch(r"  step     +\d\.\d\d s +\d\d\.\d%", first), first
    assert re.fullmatch(r"  rollout  +\d\.\d\d s +\d\d\.\d%", second), second
    assert PhaseTimer().table() == ""


def test_the_time_of_earlier_processes_counts_once():
    timer = PhaseTimer(time.perf_counter() - 5.0)
    assert 5.0 <= timer.elapsed_seconds < 65.0
    timer.resume(100.0)  # after the warm-up
    timer.resume(200.0)  # after the newest checkpoint, whose time has the warm-up in it
    assert 205.0 <= timer.elapsed_seconds < 265.0


def test_plain_lines_when_piped():
    stream = io.StringIO()
    shown = progress(40, stream, first_step=30)
    assert isinstance(shown, PlainProgress)
    time.sleep(0.1)
    shown.show(30, reward=0.4567, tokens_per_second=12345.6)
    shown.show(39, reward=float("nan"), tokens_per_second=0)
    shown.tell("alarm [bold]x[/bold] at step 39")
    shown.show(39, reward=0.5, tokens_per_second=1, alarms=("kl_exploded", "non_finite"))
    shown.close()
    first, last, told, alarmed = stream.getvalue().splitlines()
    assert told == "alarm [bold]x[/bold] at step 39"
    assert alarmed == "step 40/40  reward 0.500  1 tokens/s  0s left  ALARM kl_exploded, non_finite"
    assert re.fullmatch(r"step 31/40  reward 0\.457  12,346 tokens/s  [12]s left", first), first
    assert last == "step 40/40  reward nan  0 tokens/s  0s left"


def test_a_bar_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    shown = progress(4, stream)
    assert isinstance(shown, RichProgress)
    shown.show(1, reward=0.25, tokens_per_second=1000)
    shown.tell("alarm [bold]x[/bold] at step 1: " + 200 * "far ")
    shown.show(2, reward=0.25, tokens_per_second=1000, alarms=("kl_exploded",))
    shown.close()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "3/4" in text
    assert "reward 0.250  1,000 tokens/s" in text
    # Text is shown as text, in one line however narrow the terminal.
    assert "alarm [bold]x[/bold] at step 1: " + 200 * "far " in text
    assert text.count("ALARM kl_exploded") == 1


def test_durations_are_readable():
    assert [clock(s) for s in (0.4, 59.4, 59.6, 200, 3599.7, 7500)] == ["0s", "59s", "1m00s", "3m20s", "1h00m", "2h05m"]
