"""Runs made to fail, each in one way: the alarm for it is shown, written and counted, and can stop the run."""

import errno
import sys
from unittest import mock

import optax
import pytest

from rlagents import learner, train
from rlagents.alarms import ALARM_NAMES, AlarmError
from rlagents.checkpoints import CheckpointError
from rlagents.compilation import programs_kept
from rlagents.durable import WriteError
from rlagents.interruption import Interrupted
from rlagents.learner import NonFiniteError
from rlagents.metrics import read_lines, read_metrics
from tests import smallest_run
from tests.smallest_world import AllEqual, NothingReadable, OftenLong, OftenLost, Parity

pytestmark = pytest.mark.usefixtures("no_processes")

WILD = learner.from_optax(optax.adam(10.0), optax.constant_schedule(10.0))
"""So large a rate that the first update makes another policy."""


@pytest.fixture(scope="module", autouse=True)
def _programs_kept(tmp_path_factory):
    with programs_kept(tmp_path_factory.mktemp("programs")):
        yield


def short(**alarms):
    config = smallest_run.get_config()
    config.alarms.update({"equal_rewards_steps": 4, **alarms})
    return config


def raised(workdir):
    return [(line["step"], line["alarm"]) for line in read_lines(workdir / "alarms.jsonl")]


FAILING = {
    "a rate that is too high": (
        {"optimizer": WILD},
        # The second update of a step meets the first one's policy, so far away that it has one answer to everything.
        [(0, "ratio_exploded"), (0, "kl_exploded"), (4, "entropy_collapsed"), (4, "rewards_all_equal")],
    ),
    "rewards without a scale": ({"environment": Parity(scale=1e6)}, [(0, "gradient_norm_exploded")]),
    "rewards for everybody": ({"environment": AllEqual()}, [(3, "rewards_all_equal")]),
    "nothing readable": ({"environment": NothingReadable()}, [(2, "format_collapsed")]),
    "lost worlds": ({"environment": OftenLost()}, [(2, "tool_faults")]),
}


@pytest.mark.parametrize("way", FAILING)
def test_a_failing_run_raises_the_alarm_for_it(way, tmp_path, capsys):
    changes, wanted = FAILING[way]
    workdir = tmp_path / "run"
    smallest_run.run(short(), workdir, **changes)
    assert raised(workdir) == wanted
    shown = capsys.readouterr().out
    assert all(f"alarm {name} at step {step}: " in shown for step, name in wanted)
    assert "ALARM " + wanted[-1][1] in shown or wanted[-1][0] == 4  # a step later, in the line of progress
    rows = read_metrics(workdir / "metrics.jsonl")
    for step, name in wanted:
        assert [row[f"alarms/{name}"] for row in rows[: step + 1]] == [0] * step + [1]
    assert all(row["alarms"] == sum(row[f"alarms/{name}"] for name in ALARM_NAMES) for row in rows)


def test_every_alarm_has_a_run_that_fails_in_its_way():
    ways = {name for _, wanted in FAILING.values() for _, name in wanted}
    assert ways | {"non_finite"} == set(ALARM_NAMES)


def test_a_healthy_run_raises_none(tmp_path, capsys):
    config = short()
    config.rl.steps = 30
    smallest_run.run(config, tmp_path / "run")
    assert raised(tmp_path / "run") == []
    assert "alarm" not in capsys.readouterr().out.lower()


def test_rewards_that_overflow_are_told_at_once_and_end_the_run_in_the_third_step(tmp_path):
    with pytest.raises(NonFiniteError, match="3 updates in a row were skipped, the last at step 2: the gradient's"):
        smallest_run.run(short(), tmp_path / "run", environment=Parity(scale=1e38))
    assert raised(tmp_path / "run") == [(0, "non_finite")]


def test_an_alarm_stops_the_run_with_a_checkpoint_that_it_can_go_on_from(tmp_path, capsys):
    config, workdir = short(stop=("rewards_all_equal",)), tmp_path / "run"
    config.rl.steps = 12
    said = r"^alarm rewards_all_equal at step 3: .*; alarms.stop names it, and a checkpoint of step 5 is written$"
    with pytest.raises(AlarmError, match=said):
        smallest_run.run(config, workdir, environment=AllEqual())
    # It is read a step late.
    assert [row["step"] for row in read_metrics(workdir / "metrics.jsonl")] == [0, 1, 2, 3, 4]
    # Who starts it again wants it to go on: the alarm is still on, and is not raised again.
    capsys.readouterr()
    smallest_run.run(config, workdir, environment=AllEqual())
    assert [row["step"] for row in read_metrics(workdir / "metrics.jsonl")] == list(range(12))
    assert all(row["alarms/rewards_all_equal"] for row in read_metrics(workdir / "metrics.jsonl")[3:])
    assert raised(workdir) == [(3, "rewards_all_equal")]
    assert "step 6/12  " in capsys.readouterr().out


def end_with(error, monkeypatch, tmp_path):
    """The program, whose training ends so."""
    config = short()
    monkeypatch.setattr(train, "read_options", lambda: (config, smallest_run.build(config), tmp_path / "run"))
    monkeypatch.setattr(train, "assemble", mock.Mock())
    monkeypatch.setattr(train, "check_restore_from", mock.Mock())
    monkeypatch.setattr(train, "train", mock.Mock(side_effect=error))
    train.main([sys.argv[0]])


@pytest.mark.parametrize(
    ("error", "code"),
    [(AlarmError("x"), 3), (NonFiniteError("x"), 3), (CheckpointError("x"), 2), (WriteError(errno.ENOSPC, "x"), 2)],
    ids=repr,
)
def test_exit_codes(error, code, monkeypatch, capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        end_with(error, monkeypatch, tmp_path)
    assert ended.value.code == code
    assert capsys.readouterr().err == "rlagents.train: x\n"


def test_a_run_that_was_asked_to_stop_says_how_to_go_on_and_ends_with_75(monkeypatch, capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        end_with(Interrupted("saved after step 3"), monkeypatch, tmp_path)
    assert ended.value.code == 75
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("saved after step 3; start again with the same command to go on\n", "")


def test_a_mistake_of_ours_is_not_put_down_to_the_disk(monkeypatch, tmp_path):
    with pytest.raises(FileNotFoundError):
        end_with(FileNotFoundError(errno.ENOENT, "x"), monkeypatch, tmp_path)


def test_tasks_whose_prompt_is_too_long_are_told_and_counted_and_the_run_goes_on(tmp_path, capsys):
    workdir = tmp_path / "run"
    smallest_run.run(short(), workdir, environment=OftenLong())
    told = [line for line in capsys.readouterr().out.splitlines() if " is skipped: " in line]
    assert told
    assert all("' is skipped: its prompt has " in line and "max_prompt_tokens is 16" in line for line in told)
    rows = read_metrics(workdir / "metrics.jsonl")
    assert len(rows) == 5
    for row in rows:
        assert row["tasks_skipped"] == sum(line.startswith(f"step {row['step'] + 1}: ") for line in told)
