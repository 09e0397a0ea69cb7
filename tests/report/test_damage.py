"""What cannot be read, does not fit or is not a run: counted, left out and told, or refused with a line."""

import io
import json
import sys

import numpy as np
import pytest

from rlagents.metrics import JsonLines
from rlagents.report.__main__ import main
from rlagents.report.pages import Pages, fitting_pages
from rlagents.report.reading import read_run
from tests.report.reading import report
from tests.report.synthetic import group, write_run


def test_damaged_lines_are_skipped_and_counted(tmp_path, capsys):
    folder = write_run(tmp_path / "run", steps=4)
    for name, text in (
        ("metrics.jsonl", '{"step": 4, "rew'),
        ("alarms.jsonl", "no JSON\nnor this\n"),
        (
            "trajectories.jsonl",
            '{"step": 4, "task": "x", "stream": 1, "opening": [], "members": []}\n{"step": 5}\n[]\n',
        ),
    ):
        with (folder / name).open("a") as file:
            file.write(text)
    line = json.loads((folder / "trajectories.jsonl").read_text().splitlines()[3])
    line["members"][0]["columns"]["id"] = "AAAA"
    with (folder / "trajectories.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    found = report(folder).index
    assert found["runs"][0]["damaged"] == {"alarms.jsonl": 2, "metrics.jsonl": 1, "trajectories.jsonl": 4}
    assert len(found["groups"]["step"]) == 4 + 3 * 4
    assert "7 damaged lines skipped" in capsys.readouterr().out


def test_nothing_that_a_log_may_say_breaks_the_report(tmp_path, capsys):
    folder = write_run(tmp_path / "run", steps=2)
    line = json.loads((folder / "trajectories.jsonl").read_text().splitlines()[0])
    for name, text in (
        (
            "metrics.jsonl",
            f'{{"step": 2, "reward": {"9" * 300}}}\n{{"step": 3, "reward": NaN}}\n{{"step": {10**300}}}\n',
        ),
        ("alarms.jsonl", '{"step": 1, "alarm": "x", "value": Infinity, "threshold": 1, "message": "y"}\n'),
        ("trajectories.jsonl", f"{json.dumps(line | {'stream': [1e400]})}\n{json.dumps(line | {'stream': 'inf'})}\n"),
        ("held_out.jsonl", f'{{"step": 1, "opening": {"[" * 100_000}}}\n'),
    ):
        with (folder / name).open("a") as file:
            file.write(text)
    (folder / "config.json").write_text("[" * 100_000)
    found = report(folder).index["runs"][0]["damaged"]
    assert found == {
        "metrics.jsonl": 2,
        "alarms.jsonl": 1,
        "trajectories.jsonl": 2,
        "held_out.jsonl": 1,
        "config.json": 1,
    }
    assert "7 damaged lines skipped" in capsys.readouterr().out


def test_names_that_a_terminal_cannot_show(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "über", steps=2)
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    assert main([str(folder)]) == 0
    shown.flush()
    assert b"\\xfcber/report.html" in shown.buffer.getvalue()


def test_rotated_files_are_read_whole(tmp_path):
    folder = write_run(tmp_path / "run", steps=1)
    with JsonLines(folder / "trajectories.jsonl", first_step=0, max_bytes=30_000) as lines:
        for step in range(9):
            lines.write(group(step, step, "t", np.random.default_rng(step)))
    assert len(list(folder.glob("trajectories*.jsonl"))) > 2
    groups = report(folder).index["groups"]
    assert [step for step, phase in zip(groups["step"], groups["phase"]) if phase == "training"] == list(range(9))


def test_more_than_fits_is_left_out_evenly(tmp_path, capsys):
    folder = write_run(tmp_path / "run", steps=12)
    run = read_run(folder, "a")
    whole, _ = fitting_pages([run], 10**9)
    half, _ = fitting_pages([run], whole.size // 2)
    assert 0 < half.size <= whole.size // 2
    steps = [step for step, phase in zip(half.index["step"], half.index["phase"]) if phase == "training"]
    assert 2 <= len(steps) < 12
    assert max(np.diff([-1, *steps, 12])) <= 2 * 12 / len(steps)
    assert len(fitting_pages([run], 0)[0].index["step"]) == 0
    report(folder, max_megabytes=whole.size / 2e6)
    assert "groups left out (--max_megabytes)" in capsys.readouterr().out


def test_pages_end_where_they_are_full():
    pages, draw = Pages(), np.random.default_rng(0)
    for step in range(40):
        pages.add(0, "training", group(step, step, "t", draw, tokens_a_turn=200))
    pages.finish()
    assert pages.index["token_page"] == sorted(pages.index["token_page"])
    assert len(pages.tokens) == pages.index["token_page"][-1] + 1 > 1
    for page in set(pages.index["token_page"]):
        places = [
            place for at, place in zip(pages.index["token_page"], pages.index["token_place"], strict=True) if at == page
        ]
        assert places == list(range(len(places)))


@pytest.mark.parametrize("file", ["warm_up.jsonl", "evaluations.jsonl"])
def test_a_warm_up_or_an_evaluation_alone_is_shown(file, tmp_path):
    run = write_run(tmp_path / "run", steps=2)
    for other in ("metrics.jsonl", "evaluations.jsonl", "warm_up.jsonl", "trajectories.jsonl"):
        if other != file:
            (run / other).unlink(missing_ok=True)
    assert (run / file).exists()
    assert main([str(run)]) == 0
    assert (run / "report.html").stat().st_size > 10_000


def test_what_the_user_has_to_mend_ends_with_2_and_a_line(tmp_path, capsys):
    empty, file = tmp_path / "empty", tmp_path / "notes.html"
    empty.mkdir()
    file.write_text("precious")
    run = write_run(tmp_path / "run", steps=2)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "metrics.jsonl").write_text('{"step": 0')
    for arguments, said in (
        ([tmp_path / "nowhere"], "there is no folder"),
        ([empty], "has none of metrics.jsonl, evaluations.jsonl, warm_up.jsonl; give the"),
        ([tmp_path / "begun"], "holds no line that can be read"),
        ([run, f"--output={file}"], "is there and is no report; give another --output"),
        ([run, f"--output={tmp_path / 'no' / 'x.html'}"], "cannot be written"),
        ([run, f"--output={tmp_path}"], "cannot be written"),
        ([run, "--max_megabytes=0"], "give a number > 0"),
        ([run, "--max_megabytes=nan"], "--max_megabytes is nan; give a number > 0"),
        ([run, "--max_megabytes=inf"], "--max_megabytes is inf; give a number > 0"),
        ([run, run], "the same DIR is given twice"),
        ([run, "--nonsense"], "unrecognized arguments"),
        ([], "DIR"),
    ):
        assert main(list(map(str, arguments))) == 2
        found = capsys.readouterr()
        assert said in found.err
        assert "Traceback" not in found.err
        assert not found.out
    assert file.read_text() == "precious"
    assert not list(tmp_path.rglob("report.html"))


def test_a_report_replaces_a_report_and_two_are_the_same(tmp_path):
    run = write_run(tmp_path / "run", steps=3)
    assert main([str(run)]) == 0
    first = (run / "report.html").read_bytes()
    assert main([str(run)]) == 0
    assert (run / "report.html").read_bytes() == first
    assert not list(run.glob("*.unfinished"))


def test_a_run_that_logs_nothing_but_metrics_has_a_report(tmp_path):
    folder = tmp_path / "bare"
    with JsonLines(folder / "metrics.jsonl") as lines:
        lines.write({"step": 0, "reward": 0.5})
    index = report(folder).index
    assert index["runs"][0]["config"] == {}
    assert index["groups"]["step"] == []
