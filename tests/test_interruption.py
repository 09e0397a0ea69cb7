"""A signal sets a flag; the second Ctrl-C ends the process; handlers are put back."""

import os
import signal
import subprocess
import sys

import jax
import pytest
from jax.experimental import multihost_utils

from rlagents.interruption import Interruption, interruptible


@pytest.fixture
def _terminal():
    """SIGHUP as a terminal's programs have it, also where the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("_terminal")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_asks_and_the_handlers_are_put_back(number, capsys):
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    with interruptible() as interruption:
        assert not interruption.requested(3)
        os.kill(os.getpid(), number)
        assert interruption.requested(3)
        assert interruption.requested(4)
        assert interruption.signal is number
        assert capsys.readouterr().out == f"{number.name}: saving after this step, then stopping\n"
    assert {each: signal.getsignal(each) for each in before} == before


def test_who_ignores_the_closed_terminal_goes_on():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with interruptible() as interruption:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interruption.requested(3)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_that_comes_while_something_is_printed_asks_too(monkeypatch):
    class Printing:
        def write(self, text):
            raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stdout>'>")

    with interruptible() as interruption, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", Printing())
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.requested(3)


def test_handlers_are_put_back_after_an_error_too():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyError), interruptible():
        raise KeyError
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_sigterm_still_only_asks_and_a_second_sigint_ends_at_once():
    program = """
import os, signal
from rlagents.interruption import interruptible
with interruptible() as interruption:
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
        assert interruption.requested(0)
    print("asked", flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    print("never reached", flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == -signal.SIGINT, ended.stderr
    assert ended.stdout.splitlines()[-1] == "asked"


def test_nobody_can_ask_before_anybody_listens():
    assert not Interruption().requested(0)


def test_several_processes_agree_and_leave_sigterm_to_jax(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    agreed = []
    monkeypatch.setattr(multihost_utils, "reached_preemption_sync_point", lambda step: agreed.append(step) or step == 4)
    before = signal.getsignal(signal.SIGTERM)
    with interruptible() as interruption:
        assert signal.getsignal(signal.SIGTERM) is before
        assert [interruption.requested(step) for step in (3, 4)] == [False, True]
    assert agreed == [3, 4]
