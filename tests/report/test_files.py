"""What is in the way where logs are read and the report is written: said in a line with the file and what to do, and
nothing of the user's is overwritten."""

import os
import resource
import subprocess
import sys

import pytest

from rlagents.report import __main__ as program
from rlagents.report import document
from tests.report.synthetic import write_run

LOGS = ("metrics", "evaluations", "warm_up", "alarms", "trajectories", "held_out")


@pytest.fixture
def refused(capsys):
    """What the program says on standard error, in one line; it ends with 2 and without a traceback."""

    def said(*arguments):
        assert program.main(list(map(str, arguments))) == 2
        out, err = capsys.readouterr()
        assert not out
        assert err.startswith("rlagents.report: ")
        assert err.count("\n") == 1
        assert "Errno" not in err
        return err

    return said


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", steps=2)


@pytest.mark.parametrize("name", [*(f"{name}.jsonl" for name in LOGS), "metrics.0001.jsonl", "config.json"])
def test_a_folder_in_place_of_a_log_is_named_with_what_to_do(name, run, refused):
    (run / name).unlink(missing_ok=True)
    (run / name).mkdir()
    said = refused(run)
    assert f"{run / name} is a folder, where a file" in said
    assert "move it away" in said


def test_a_pipe_in_place_of_a_log_is_not_waited_for(run, refused):
    (run / "alarms.jsonl").unlink()
    os.mkfifo(run / "alarms.jsonl")
    assert f"{run / 'alarms.jsonl'} is no file" in refused(run)


@pytest.mark.parametrize("name", ["metrics.jsonl", "trajectories.jsonl", "config.json"])
def test_a_file_that_cannot_be_read_is_named_with_what_to_do(name, run, refused, monkeypatch):
    opened = program.Path.open

    def forbidden(path, *arguments, **options):
        if path.name == name:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(program.Path, "open", forbidden)
    said = refused(run)
    assert f"{run / name} cannot be read: Permission denied" in said
    assert "give a DIR whose files you may read" in said


def test_what_is_no_folder_of_a_run_is_said_as_it_is(tmp_path, run, refused):
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert f"{tmp_path / 'link'} is a link to {tmp_path / 'gone'}, which is not there" in refused(tmp_path / "link")
    assert f"{tmp_path / 'loop'} is a link to" in refused(run, tmp_path / "loop")
    assert f"{run / 'metrics.jsonl'} is a file; give the folder that it is in" in refused(run / "metrics.jsonl")
    assert "there is no folder" in refused(tmp_path / "nowhere")


def test_a_link_to_a_run_is_the_run(tmp_path, run):
    (tmp_path / "link").symlink_to(run)
    assert program.main([str(tmp_path / "link")]) == 0
    assert (run / "report.html").exists()


def test_a_folder_that_takes_no_file_is_told_with_the_option_to_give(run, refused):
    """Nobody can make a file in /proc."""
    said = refused(run, "--output=/proc/report.html")
    assert "/proc/report.html cannot be written: " in said
    assert "--output" in said


@pytest.mark.parametrize("at", ["opening", "writing", "putting in place"])
def test_a_disk_that_refuses_is_told_with_the_option_to_give(at, run, refused, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    owner, name = {
        "opening": (document, "_unfinished"),
        "writing": (document, "_parts"),
        "putting in place": (document.os, "replace"),
    }[at]
    before = sorted(run.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, full)
        said = refused(run)
    assert f"{run / 'report.html'} cannot be written: No space left on device" in said
    assert "--output" in said
    assert sorted(run.iterdir()) == before


def test_a_disk_that_fills_up_leaves_nothing_behind(run):
    """A limit on the size of files stands for it: the report is larger, its logs are there already."""
    limit = "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
    limit += f"resource.setrlimit(resource.RLIMIT_FSIZE, (1000, {resource.RLIM_INFINITY}));"
    start = f"{limit} from rlagents.report.__main__ import main; sys.exit(main(sys.argv[1:]))"
    before = sorted(run.iterdir())
    done = subprocess.run([sys.executable, "-c", start, str(run)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{run / 'report.html'} cannot be written: File too large" in done.stderr
    assert "--output" in done.stderr
    assert sorted(run.iterdir()) == before


def test_files_of_the_users_that_look_like_unfinished_reports_are_left_alone(run):
    theirs = ["report.html.unfinished", "report-0.unfinished", "report-1.unfinished"]
    for name in theirs:
        (run / name).write_text("precious")
    assert program.main([str(run)]) == 0
    assert program.main([str(run)]) == 0
    found = {path.name: path.read_text() for path in run.glob("*.unfinished")}
    assert found == dict.fromkeys(theirs, "precious")


def test_a_file_that_comes_to_be_while_the_report_is_made_is_left_alone(run, refused, monkeypatch):
    parts = document._parts

    def meanwhile(*arguments):
        (run / "report.html").write_text("precious")
        return parts(*arguments)

    monkeypatch.setattr(document, "_parts", meanwhile)
    assert "is there and is no report; give another --output" in refused(run)
    assert (run / "report.html").read_text() == "precious"
    assert not list(run.glob("*.unfinished"))


def test_a_link_as_output_stays_a_link(tmp_path, run):
    (tmp_path / "real.html").write_text("precious")
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")
    assert program.main([str(run), f"--output={tmp_path / 'link.html'}"]) == 2
    assert (tmp_path / "real.html").read_text() == "precious"
    (tmp_path / "real.html").unlink()
    assert program.main([str(run), f"--output={tmp_path / 'link.html'}"]) == 0
    assert (tmp_path / "link.html").is_symlink()
    assert document.MARK in (tmp_path / "real.html").read_text()


def test_an_output_that_is_no_file_is_refused(tmp_path, run, refused):
    os.mkfifo(tmp_path / "pipe")
    assert f"{tmp_path / 'pipe'} is no file; give another --output" in refused(run, f"--output={tmp_path / 'pipe'}")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "is a link that leads to itself; give another --output" in refused(run, f"--output={tmp_path / 'loop'}")
