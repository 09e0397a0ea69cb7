"""The runner: each run once, parents first, what is done is skipped, what stops it is handed on, failures are told."""

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest
from ml_collections import ConfigDict

from experiments.rc_grpo import cells, grid, procedural
from experiments.rc_grpo.cells import GRID, OURS, SWEEPS, with_parents
from rlagents import sharding
from rlagents.all_checks import check_config
from rlagents.config_defaults import complete
from rlagents.interruption import EXIT_CODE as INTERRUPTED

ALL = list({cell.name: cell for some in (GRID, *SWEEPS.values()) for cell in some}.values())
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def recorded(monkeypatch):
    """Children that only write down that they were there; handlers of signals as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    script = "import pathlib, sys; print('ran', sys.argv[1]); pathlib.Path(sys.argv[2]).parent.mkdir(exist_ok=True)"

    def train(folder, cell, seed, settings):
        return [sys.executable, "-c", script, cell.name, str(folder / cell.name / "x")]

    def evaluate(folder, cell):
        done = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('{}')"
        return [sys.executable, "-c", done, str(folder / cell.name / "goals.json")]

    monkeypatch.setattr(grid, "train_command", train)
    monkeypatch.setattr(grid, "evaluate_command", evaluate)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_what_is_done_is_skipped(recorded, tmp_path, capsys):
    settings = grid.Settings(False, ())
    grid.run_all(tmp_path, GRID[:2], [0, 1], settings)
    assert "4 of 4 runs to do" in capsys.readouterr().out
    (tmp_path / "seed-1" / "sft" / "goals.json").unlink()
    grid.run_all(tmp_path, GRID[:3], [0, 1], settings)
    out = capsys.readouterr().out
    assert "3 of 6 runs to do" in out
    assert [line.partition(":")[0] for line in out.splitlines()[1:]] == [
        "1/3  seed 0  RCTP",
        "2/3  seed 1  SFT",
        "3/3  seed 1  RCTP",
    ]
    assert (tmp_path / "seed-1" / "sft.log").read_text() == "ran sft\nran sft\n"
    assert (tmp_path / "seed-0" / "sft.log").read_text() == "ran sft\n"


def test_a_run_that_fails_ends_the_grid_with_what_it_said(recorded, tmp_path, monkeypatch, capsys):
    fails = [sys.executable, "-c", "print('no such weights'); raise SystemExit(2)"]
    monkeypatch.setattr(grid, "train_command", lambda *_: fails)
    with pytest.raises(SystemExit) as ended:
        grid.run_all(tmp_path, GRID[:1], [0], grid.Settings(False, ()))
    assert ended.value.code == 1
    assert "seed 0, Base ended with 2" in (said := capsys.readouterr().err)
    assert "no such weights" in said
    assert not (tmp_path / "seed-0" / "base" / "goals.json").exists()


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_what_stops_the_grid_stops_the_run_and_waits_until_it_has_saved(tmp_path, asked):
    saves = (
        "import pathlib, signal, sys, time\n"
        "def stop(*_):\n time.sleep(0.5); pathlib.Path(sys.argv[1]).write_text('saved'); sys.exit(75)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "print('begun', flush=True)\n"
        "time.sleep(60)\n"
    )
    program = (
        "import sys; from pathlib import Path; from experiments.rc_grpo import grid\n"
        f"grid.train_command = lambda folder, *_: [sys.executable, '-c', {saves!r}, str(folder / 'saved')]\n"
        f"grid.run_all(Path({str(tmp_path)!r}), grid.GRID[:2], [0], grid.Settings(False, ()))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
    log = tmp_path / "seed-0" / "base.log"
    for _ in range(600):
        if log.exists() and "begun" in log.read_text():
            break
        time.sleep(0.1)
    process.send_signal(asked)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED
    assert (tmp_path / "seed-0" / "saved").read_text() == "saved"
    assert "Base: stopped, and saved" in out
    assert not (tmp_path / "seed-0" / "sft.log").exists()


@pytest.mark.parametrize("cell", ALL, ids=lambda cell: cell.name)
@pytest.mark.parametrize("quick", [False, True])
def test_every_cell_is_a_config_that_a_run_gets_through(cell, quick, monkeypatch):
    one = functools.partial(sharding.make_mesh, devices=jax.devices()[:1])  # however many the tests run on
    monkeypatch.setattr(sharding, "make_mesh", one)
    config = procedural.get_config(cell.variant)
    complete(config)
    for option in grid.Settings(quick, ()).options(cell):
        key, _, value = option.removeprefix("--config.").partition("=")
        section, _, name = key.rpartition(".")
        holder: ConfigDict = config[section] if section else config
        holder[name] = type(holder[name])(value)  # KeyError for a key that there is not
    check_config(config, trains=True)
    assert bool(config.rl.steps) == cell.variant.endswith("grpo")
    assert bool(config.supervised.steps) != bool(config.rl.steps)


def test_commands_name_the_seed_the_parent_and_further_options(tmp_path):
    settings = grid.Settings(True, ("--config.rl.steps=7",))
    command = grid.train_command(tmp_path, OURS, 3, settings)
    assert f"--config.checkpoint.restore_from={tmp_path}/rctp/warm_up" in command
    assert "--config.seed=3" in command
    assert f"--workdir={tmp_path}/rctp+rc-grpo" in command
    # Of two the later one counts.
    assert command.index("--config.rl.steps=7") > command.index("--config.rl.steps=25")
    assert not any("restore_from" in word for word in grid.train_command(tmp_path, cells.BASE, 3, settings))


def test_parents_come_first_and_the_grid_is_the_paper_s():
    assert len(GRID) == 9
    assert with_parents(GRID) == list(GRID)
    for sweep in SWEEPS.values():
        assert [cell.name for cell in with_parents(sweep)][:2] == ["base", "rctp"]
        assert OURS in sweep
    assert len({cell.name for cell in ALL}) == len(ALL) == 9 + 4 + 3 + 4
    assert cells.PAPER.keys() < {cell.name for cell in GRID}


def test_the_command_line():
    assert grid.parsed(["d"])[1:] == (list(GRID), [0, 1, 2, 3, 4], grid.Settings(False, ()))
    assert grid.parsed(["d", "--quick", "--config.a=1"])[2:] == ([0, 1], grid.Settings(True, ("--config.a=1",)))
    assert grid.parsed(["d", "--what=draw", "--seeds=1"])[1] == with_parents(SWEEPS["draw"])
    for wrong in (["d", "--sweep"], ["d", "e"], ["d", "--seeds=0"], ["d", "--what=all"], []):
        with pytest.raises(SystemExit) as ended:
            grid.parsed(wrong)
        assert ended.value.code == 2


def test_a_folder_keeps_its_settings(tmp_path):
    grid.claim(tmp_path / "new", grid.Settings(True, ()))
    grid.claim(tmp_path / "new", grid.Settings(True, ()))
    with pytest.raises(ValueError, match="give another folder"):
        grid.claim(tmp_path / "new", grid.Settings(False, ()))
