"""A folder belongs to one run, and to one process at a time; what differs is named and nothing is overwritten."""

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from rlagents.durable import WriteError
from rlagents.workdir import claim_workdir, claimed, differing_keys

CONFIG = {"seed": 0, "rl": {"steps": 3, "buckets": (1, 2)}}


def test_the_same_config_may_come_back(tmp_path):
    claim_workdir(tmp_path / "run", ConfigDict(CONFIG))
    claim_workdir(tmp_path / "run", ConfigDict(CONFIG))
    assert json.loads((tmp_path / "run" / "config.json").read_text())["rl"]["steps"] == 3


def test_another_config_is_refused_with_the_keys_that_differ(tmp_path):
    claim_workdir(tmp_path / "run", ConfigDict(CONFIG))
    before = (tmp_path / "run" / "config.json").read_bytes()
    with pytest.raises(ValueError, match=r"rl\.steps is 4, was 3"):
        claim_workdir(tmp_path / "run", ConfigDict({"seed": 0, "rl": {"steps": 4, "buckets": (1, 2)}}))
    assert (tmp_path / "run" / "config.json").read_bytes() == before


def test_a_folder_of_something_else_is_refused_untouched(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="is not empty"):
        claim_workdir(tmp_path, ConfigDict(CONFIG))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_how_a_config_file_was_asked_for_what_it_gave_is_no_difference():
    def stored(argument, steps=3):
        return {"rl": {"steps": steps}, "experiment": {"file": "mine.py", "argument": argument}}

    assert differing_keys(stored(None), stored("one epoch")) == []
    assert differing_keys(stored(None), stored("one epoch", 4)) == ["rl.steps is 4, was 3"]
    other = stored(None) | {"experiment": {"file": "other.py", "argument": None}}
    assert differing_keys(stored(None), other) == ["experiment.file is 'other.py', was 'mine.py'"]


def test_keys_on_one_side_alone_differ_too():
    assert differing_keys({"a": {"b": 1}}, {"a": {"c": None}}) == ["a.b is absent, was 1", "a.c is None, was absent"]


HOLDER = """
import sys, time
from pathlib import Path
from ml_collections import ConfigDict
from rlagents.workdir import claimed
with claimed(Path(sys.argv[1]), ConfigDict({"seed": 0})):
    print("claimed", flush=True)
    time.sleep(600)
"""


@contextlib.contextmanager
def held(workdir):
    """Another process works there."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(workdir)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "claimed\n"
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def contents(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted(folder.iterdir())}


def test_a_second_process_is_refused_and_changes_nothing_and_a_kill_gives_the_folder_free(tmp_path):
    workdir = tmp_path / "run"
    with held(workdir) as process:
        before = contents(workdir)
        assert before.keys() == {"config.json", "lock"}
        with (
            pytest.raises(ValueError, match=f"is being worked in by process {process.pid} on .+; wait until") as caught,
            claimed(workdir, ConfigDict({"seed": 0})),
        ):
            raise AssertionError("two at a time")
        assert "\n" not in str(caught.value)
        assert contents(workdir) == before
    for _ in range(2):
        with claimed(workdir, ConfigDict({"seed": 0})):
            assert f"process {os.getpid()} on " in (workdir / "lock").read_text()


def test_what_is_refused_is_not_locked_either(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="is not empty"), claimed(tmp_path, ConfigDict(CONFIG)):
        raise AssertionError("somebody else's folder")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_start_that_was_taken_away_is_taken_up(tmp_path):
    """After the lock and before config.json, which may be there in part."""
    (tmp_path / "lock").write_text(f"process 1 on {'a machine whose name is long' * 10}\n")
    (tmp_path / "config.json.unfinished").write_text("{")
    with claimed(tmp_path, ConfigDict(CONFIG)):
        assert json.loads((tmp_path / "config.json").read_text())["seed"] == 0
        assert (tmp_path / "lock").read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "lock"]


@pytest.mark.parametrize("where", ["mkdir", "open"])
def test_a_folder_that_cannot_be_written_is_named(where, tmp_path, monkeypatch):
    """Root may write anywhere, so the system's answer is put in its mouth."""

    def refuse(*arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system")

    workdir = tmp_path / "run"
    if where == "open":
        workdir.mkdir()
    monkeypatch.setattr(*((Path, "mkdir") if where == "mkdir" else (os, "open")), refuse)
    said = r"run/lock cannot be written \(Read-only file system\); give a folder that"
    with pytest.raises(WriteError, match=said), claimed(workdir, ConfigDict(CONFIG)):
        raise AssertionError("not claimed")


@pytest.mark.parametrize("made", [True, False])
def test_a_start_that_fails_before_it_has_written_anything_leaves_no_folder(made, tmp_path):
    workdir = tmp_path / "run"
    if not made:
        workdir.mkdir()

    def failing(files):
        for name, text in files:
            (workdir / name).write_text(text)
        raise KeyError("later")

    def start(*files):
        with pytest.raises(KeyError, match="later"), claimed(workdir, ConfigDict(CONFIG)):
            failing(files)

    start(("metrics.jsonl", ""))
    assert list(tmp_path.rglob("*")) == ([] if made else [workdir])
    start(("metrics.jsonl", "{}"), ("alarms.jsonl", ""))
    held = contents(workdir)
    assert sorted(held) == ["alarms.jsonl", "config.json", "lock", "metrics.jsonl"]
    (workdir / "metrics.jsonl").unlink()
    # ... and who takes a folder up again leaves it as it was.
    start()
    assert sorted(contents(workdir)) == ["alarms.jsonl", "config.json", "lock"]
    with claimed(workdir, ConfigDict(CONFIG)):
        pass
    assert sorted(contents(workdir)) == ["alarms.jsonl", "config.json", "lock"]


def test_a_lock_that_was_given_up_is_no_lock(tmp_path, monkeypatch):
    """Between opening it and holding it, its holder was refused and took the folder away."""

    def flock(file, how):
        (tmp_path / "run" / "lock").unlink(missing_ok=True)

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(ValueError, match="was just given up by another process; start again"):
        claimed(tmp_path / "run", ConfigDict(CONFIG)).__enter__()


def test_a_disk_that_is_full_from_the_start_is_told_with_the_file_and_leaves_no_folder(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("pwrite", "fsync"):
        monkeypatch.setattr(os, name, full)
    said = r"run/config\.json cannot be written \(No space left on device, \d+ bytes wanted\); make room"
    with pytest.raises(WriteError, match=said), claimed(tmp_path / "run", ConfigDict(CONFIG)):
        raise AssertionError("not claimed")
    assert list(tmp_path.iterdir()) == []
