"""A file is its old bytes or its new ones; an error names the file and what to do."""

import errno
import os
import resource

import pytest

from rlagents import durable
from rlagents.durable import WriteError, of_the_disk, sync_file, write_durably, writing


class TakenAway(BaseException):
    """The process ends here."""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_writes_and_replaces_and_leaves_nothing_beside(tmp_path):
    for data in (b"one", b"", b"three" * 1000):
        write_durably(tmp_path / "file", data)
        assert (tmp_path / "file").read_bytes() == data
        assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_taken_away_before_the_last_move_it_is_the_old_file_and_afterwards_the_new_one(call, tmp_path, monkeypatch):
    write_durably(tmp_path / "file", b"old")
    with monkeypatch.context() as patch:

        def end(*arguments):
            raise TakenAway

        patch.setattr(durable.os, call, end)
        with pytest.raises(TakenAway):
            write_durably(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    write_durably(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert names(tmp_path) == ["file"]


def test_the_bytes_are_on_the_disk_before_the_name_and_the_name_before_it_returns(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)

        def told(*arguments, name=name, original=original):
            calls.append(name)
            return original(*arguments)

        monkeypatch.setattr(durable.os, name, told)
    write_durably(tmp_path / "file", b"data")
    assert calls == ["fsync", "replace", "fsync"]


def test_a_full_disk_leaves_the_old_file_and_gives_the_room_back(tmp_path):
    write_durably(tmp_path / "file", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        with pytest.raises(WriteError) as caught:
            write_durably(tmp_path / "file", b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / 'file'} cannot be written (File too large, 2,000 bytes wanted); make room")
    assert of_the_disk(caught.value)
    assert (tmp_path / "file").read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "make room, and start again"),
        (errno.EDQUOT, "make room, and start again"),
        (errno.EROFS, "give a folder that this user may write to"),
        (errno.EACCES, "give a folder that this user may write to"),
        (errno.EISDIR, "move away what lies there"),
        (errno.EEXIST, "move away what lies there"),
        (errno.EIO, "see to the disk"),
        (errno.ENOENT, "see to the disk"),
    ],
)
def test_an_error_says_what_to_do(number, remedy, tmp_path):
    with pytest.raises(WriteError) as caught, writing(tmp_path / "file"):
        raise OSError(number, "as the system says")
    assert f"{tmp_path / 'file'} cannot be written ({os.strerror(number)}); {remedy}" in str(caught.value)
    assert of_the_disk(caught.value)
    with pytest.raises(WriteError) as outer, writing(tmp_path / "another"):
        raise caught.value
    assert outer.value is caught.value


def test_what_is_no_fault_of_the_disk_is_not_taken_for_one():
    assert not of_the_disk(FileNotFoundError(errno.ENOENT, "no such file"))
    assert not of_the_disk(ValueError("no"))


def test_a_file_that_is_not_there_need_not_be_put_on_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(durable.os, "fsync", synced.append)
    sync_file(tmp_path / "nothing")
    assert not synced
    (tmp_path / "file").write_bytes(b"data")
    sync_file(tmp_path / "file")
    assert len(synced) == 1
