"""The table says what the runs' files say, leaves out what is not finished, and refuses what is damaged."""

import csv

import pytest

from experiments.rc_grpo import table
from experiments.rc_grpo.cells import GRID, SWEEPS
from experiments.rc_grpo.results import results_of
from tests.rc_grpo.runs import write_run


def cells_of(row):
    return [word.strip() for word in row.strip("|").split("|")]


def row_of(text, title):
    return cells_of(next(line for line in text.splitlines() if line.startswith(f"| {title} |")))


@pytest.fixture
def directory(tmp_path):
    for seed, share in ((0, 0.5), (1, 0.7)):
        write_run(tmp_path, seed, "sft", share)
        goals = {"none": 0.2, "high": share, "low": 0.1}
        steps = [{"zero_variance_groups": 0.25, "reward": 0.4}, {"zero_variance_groups": 0.9, "reward": 0.6}]
        write_run(tmp_path, seed, "rctp+rc-grpo", goals, steps)
    (tmp_path / "seed-0" / "rctp").mkdir()  # not finished
    return tmp_path


def test_a_row_is_the_mean_over_seeds_beside_the_paper_s(directory, capsys):
    table.main([str(directory)])
    text = (directory / "table.md").read_text()
    assert text.strip() in capsys.readouterr().out
    head, ours = cells_of(text.splitlines()[0]), row_of(text, "RCTP + RC-GRPO")
    found = dict(zip(head, ours))
    assert found["n"] == "2"
    assert found["success"] == "**60.0 ± 127.1**"  # t of one degree of freedom, 12.7, times 10
    assert (found["under none"], found["under low"]) == ("20.0 ± 0.0", "10.0 ± 0.0")
    assert found["high - low"] == "50.0 ± 127.1"
    assert found["zero-variance groups at start"] == "0.25 ± 0"
    assert found["paper: Qwen2.5-7B"] == "85.00"
    assert dict(zip(head, row_of(text, "SFT")))["paper: Qwen2.5-7B"] == "-"
    assert set(row_of(text, "RCTP")[2:]) == {"-"}
    assert len(text.split("\n\n")[0].splitlines()) == 2 + len(GRID)
    assert "100 held-out tasks" in text
    assert not (directory / "draw.md").exists()  # the grid's own cell is no sweep


def test_csv_has_a_line_a_run_with_wilson_s_interval(directory):
    table.main([str(directory)])
    with (directory / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["cell"], row["seed"]) for row in rows] == [
        ("sft", "0"),
        ("sft", "1"),
        ("rctp+rc-grpo", "0"),
        ("rctp+rc-grpo", "1"),
    ]
    assert float(rows[2]["success_high"]) == 0.5
    assert (float(rows[2]["low_high"]), float(rows[2]["high_high"])) == pytest.approx((0.40383, 0.59617), abs=1e-5)
    assert rows[0]["entropy"] == ""
    assert rows[2]["zero_variance_groups"] == "0.25"
    assert (directory / "table.png").read_bytes().startswith(b"\x89PNG")


def test_a_sweep_has_a_table_of_its_own(directory):
    write_run(directory, 0, SWEEPS["draw"][2].name, 0.6, [{}])
    table.main([str(directory)])
    text = (directory / "draw.md").read_text()
    assert row_of(text, "exactly 2 of 5")[1] == "1"
    assert "paper" not in text
    assert "claim" not in text


def test_nothing_and_damage_are_told(tmp_path, capsys):
    for argv in ([], [str(tmp_path / "none")], [str(tmp_path)]):
        with pytest.raises(SystemExit) as ended:
            table.main(argv)
        assert ended.value.code == 2
    write_run(tmp_path, 0, "sft", 0.5)
    (tmp_path / "seed-0" / "sft" / "goals.json").write_text('{"none": 3}')
    with pytest.raises(SystemExit):
        table.main([str(tmp_path)])
    assert "goals.json is damaged" in capsys.readouterr().err


def test_the_correlation_is_of_entropy_and_reward(tmp_path):
    steps = [{"entropy": 1.0, "reward": 0.1}, {"entropy": 0.5, "reward": 0.2}, {"entropy": 0.2, "reward": 0.9}]
    write_run(tmp_path, 0, "sft+grpo", 0.5, steps)
    (result,) = results_of(tmp_path, GRID[5])
    assert result.entropy_with_reward == pytest.approx(-0.8515, abs=1e-4)
    assert result.at_start("entropy") == 1.0
