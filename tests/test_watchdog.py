"""A run that stands still says where, and is left alone; one that gets on, or was itself put to sleep, says nothing."""

import threading
import time

import pytest

from rlagents.facts import Task
from rlagents.rollouts.local_pool import LocalPool
from rlagents.rollouts.pool import ProcessPool
from rlagents.timing import PhaseTimer
from rlagents.watchdog import Watchdog, check_watchdog
from tests.rollouts.worlds import CountingEnvironment


class Clock:
    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


def dog(timer, tmp_path, clock, status=lambda: "tool workers: workers_replaced 2"):
    return Watchdog(timer, tmp_path, status, stalled_after_seconds=80.0, clock=clock)


def looks(watchdog, clock, seconds, change=lambda: None):
    """Look every 10 seconds; at which of them a stall was told."""
    told = []
    for passed in range(10, seconds + 1, 10):
        clock.seconds += 10
        change()
        if watchdog.look():
            told.append(passed)
    return told


def test_a_stall_is_told_with_its_phase_and_every_stack(tmp_path, clock, capsys):
    timer = PhaseTimer()
    watchdog = dog(timer, tmp_path, clock)
    with timer.phase("update"), timer.phase("waiting"):
        # The first look finds that something began; 80 seconds later nothing else has.
        assert looks(watchdog, clock, 90) == [90]
    said = "nothing has begun or ended for 80 s; the run stands in: update > waiting"
    shown = capsys.readouterr().err
    assert shown == (
        f"watchdog: {said}; tool workers: workers_replaced 2; what every thread is doing is in {tmp_path}/stalls.txt\n"
    )
    written = (tmp_path / "stalls.txt").read_text()
    first, status, *stacks = written.splitlines()
    assert first.endswith(f"  {said}")
    assert status == "tool workers: workers_replaced 2"
    assert any("test_a_stall_is_told_with_its_phase_and_every_stack" in line for line in stacks)


def test_the_same_stall_is_told_ever_more_seldom(tmp_path, clock):
    watchdog = dog(PhaseTimer(), tmp_path, clock)
    assert looks(watchdog, clock, 1000) == [80, 160, 320, 640]
    assert (tmp_path / "stalls.txt").read_text().count("outside of all phases") == 4


def test_whatever_begins_or_ends_starts_the_time_anew(tmp_path, clock):
    timer = PhaseTimer()
    watchdog = dog(timer, tmp_path, clock)

    def short_phase():
        with timer.phase("rollout"):
            pass

    for change in (short_phase, timer.beat):
        assert looks(watchdog, clock, 500, change) == []
    assert looks(watchdog, clock, 200) == [80, 160]
    timer.beat()
    assert looks(watchdog, clock, 200) == [90, 170]  # a new stall


def test_time_for_which_the_whole_process_slept_does_not_count(tmp_path, clock):
    watchdog = dog(PhaseTimer(), tmp_path, clock)
    assert looks(watchdog, clock, 50) == []
    clock.seconds += 3600  # suspended: the watchdog, too, did not look
    assert looks(watchdog, clock, 20) == []
    assert looks(watchdog, clock, 20) == [10]  # 80 seconds awake


def test_a_status_that_fails_does_not_hide_the_stall(tmp_path, clock, capsys):
    def fails():
        raise RuntimeError("gone")

    assert looks(dog(PhaseTimer(), tmp_path, clock, fails), clock, 80) == [80]
    assert "; no status: RuntimeError: gone; " in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_does_not_end_the_run(tmp_path, clock, capsys):
    assert looks(dog(PhaseTimer(), tmp_path / "gone", clock), clock, 80) == [80]
    assert "stalls.txt cannot be written ([Errno 2]" in capsys.readouterr().err


def test_a_thread_looks_while_the_body_runs_and_ends_with_it(tmp_path):
    told = threading.Event()
    watchdog = Watchdog(PhaseTimer(), tmp_path, lambda: told.set() or "workers", stalled_after_seconds=0.08)
    with watchdog.watching():
        assert told.wait(60)
        assert "watchdog" in {thread.name for thread in threading.enumerate()}
    assert "watchdog" not in {thread.name for thread in threading.enumerate()}


def test_0_never_looks(tmp_path):
    with Watchdog(PhaseTimer(), tmp_path, str, stalled_after_seconds=0).watching():
        assert "watchdog" not in {thread.name for thread in threading.enumerate()}


def test_phases_are_named_and_counted_also_where_they_fail():
    timer = PhaseTimer()
    assert (timer.current, timer.beats) == ("", 0)
    with timer.phase("a"):
        assert timer.current == "a"
        with timer.phase("b"):
            assert timer.current == "a > b"
        with pytest.raises(RuntimeError), timer.phase("c"):
            raise RuntimeError
        assert timer.current == "a"
    assert (timer.current, timer.beats) == ("", 6)


def test_tool_workers_say_what_they_are_at(tmp_path):
    go = tmp_path / "go"
    with ProcessPool(CountingEnvironment(), num_workers=1, step_timeout_seconds=600.0) as pool:
        assert pool.status() == "tool workers: idle (0 waiting); nothing had to be repaired"
        episode = pool.start(Task("a"))
        asked = [episode, pool.step(episode, f"wait_for {go}"), pool.step(episode, "add 1")]
        finished = []
        while len(finished) < 1:  # started
            finished += pool.poll(0.1)
        while pool.status() != "tool workers: step (1 waiting); nothing had to be repaired":
            time.sleep(0.01)
        go.touch()
        while len(finished) < len(asked):
            finished += pool.poll(0.1)
    assert LocalPool(CountingEnvironment()).status() == "no tool workers; 0 answers to be taken"


@pytest.mark.parametrize("value", [-1, "10", None, float("nan"), True])
def test_wrong_settings_are_refused(value, tmp_path):
    said = f"stalled_after_seconds is {value!r}; give a number >= 0"
    for function in (check_watchdog, lambda **options: Watchdog(PhaseTimer(), tmp_path, str, **options)):
        with pytest.raises(ValueError, match="stalled_after_seconds") as caught:
            function(stalled_after_seconds=value)
        assert str(caught.value).startswith(said)
