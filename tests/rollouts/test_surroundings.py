"""What a request changes in its process is put back; what cannot be is named."""

import os
import signal

from rlagents.rollouts.surroundings import Surroundings


def test_what_cannot_be_put_back_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    surroundings = Surroundings()
    os.chdir(tmp_path)
    gone.rmdir()
    assert surroundings.restore() == "the working folder (No such file or directory)"


def test_a_folder_that_was_deleted_is_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    surroundings = Surroundings()
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert surroundings.restore() is None
    assert os.getcwd() == str(tmp_path)


def test_handlers_masks_variables_and_timers_are_put_back(monkeypatch):
    monkeypatch.setenv("RLAGENTS_TEST_VARIABLE", "before")
    mask = os.umask(0o027)
    surroundings = Surroundings()
    try:
        os.umask(0o777)
        os.environ["RLAGENTS_TEST_VARIABLE"] = "after"
        os.environ["RLAGENTS_TEST_OTHER"] = "new"
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_VIRTUAL, 1000)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    finally:
        restored = surroundings.restore(), os.umask(mask)
    assert restored == (None, 0o027)
    assert os.environ["RLAGENTS_TEST_VARIABLE"] == "before"
    assert "RLAGENTS_TEST_OTHER" not in os.environ
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    assert signal.SIGUSR2 not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
