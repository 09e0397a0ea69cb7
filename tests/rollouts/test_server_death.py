"""When the server of workers dies another takes its place; what processes hold, and whom they started, is known."""

import os
import signal
import subprocess
import sys
import time

import pytest

from rlagents.facts import Task
from rlagents.rollouts.faults import Lost, ToolFault
from rlagents.rollouts.pool import ProcessPool
from rlagents.rollouts.processes import children, look_at
from tests.rollouts.test_pool import Asker, is_fault
from tests.rollouts.worlds import CountingEnvironment


def kill_server(pool, workers):
    """Returns when it has taken its workers along."""
    os.kill(pool._server._process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in workers):
        assert time.monotonic() < deadline, "a worker outlived its server"
        time.sleep(0.05)


def test_the_server_s_death_takes_its_workers_along_and_nobody_else():
    with ProcessPool(CountingEnvironment(), num_workers=2) as pool:
        asker = Asker(pool)
        first, second = asker.start(), asker.start()
        asker.said(first, "add 4")
        kill_server(pool, [int(asker.said(asker.start(), "pid")) for _ in range(2)])
        assert asker.said(first, "add 0") == "total 4"
        assert asker.said(second, "add 1") == "total 1"
        assert (pool.counts["servers_restarted"], pool.counts["workers_replaced"]) == (1, 2)


def test_a_tool_that_kills_the_server_whenever_it_is_asked_is_answered_with_an_error():
    with ProcessPool(CountingEnvironment(), num_workers=1) as pool:
        asker = Asker(pool)
        sane, offender = asker.start(), asker.start()
        asker.said(sane, "add 4")
        assert is_fault(asker.step(offender, "kill_parent"), ToolFault.DIED)
        assert asker.said(sane, "add 0") == "total 4"
        assert asker.said(offender, "add 1") == "total 1"
        assert pool.counts["servers_restarted"] == 2


def test_a_server_that_cannot_live_is_not_restarted_for_ever():
    with ProcessPool(CountingEnvironment(), num_workers=1) as pool:
        asker, deadly = Asker(pool), Task("t", {"kill_parent": True})
        assert isinstance(asker.wait(pool.opening(deadly)), Lost)  # asked twice
        assert pool.counts["servers_restarted"] == 2
        with pytest.raises(RuntimeError, match="supervisor") as error:
            asker.wait(pool.opening(deadly))
        assert "the server of tool workers died 4 times in a row" in str(error.value.__cause__)


def test_a_server_that_dies_now_and_then_is_restarted_each_time():
    with ProcessPool(CountingEnvironment(), num_workers=1) as pool:
        asker = Asker(pool)
        episode = asker.start()
        for deaths in range(1, 5):
            kill_server(pool, [asker.pid()])
            assert asker.said(episode, "add 1") == f"total {deaths}"
            assert pool.counts["servers_restarted"] == deaths


def test_a_worker_needs_half_of_its_memory_for_what_it_is_asked():
    """Here the environment alone takes more than that: every request would be answered by a worker that leaks."""
    with ProcessPool(CountingEnvironment(), num_workers=1) as pool:
        asker = Asker(pool)
        alone = look_at(int(asker.said(asker.start(), "pid"))).resident_bytes
    with pytest.raises(RuntimeError, match=r"a tool worker that was asked for nothing holds .* give more"):
        ProcessPool(CountingEnvironment(), num_workers=1, worker_memory_bytes=alone)


def test_what_a_process_started_counts_with_it(tmp_path):
    program = (
        "import os, time; kept = b'x' * (64 << 20)\n"
        f"open({str(tmp_path / 'ready')!r}, 'w').close() if os.fork() == 0 else None; time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        (child,) = children(process.pid)
        assert look_at(process.pid).resident_bytes > 128 << 20
        assert 64 << 20 < look_at(child).resident_bytes < 128 << 20
    finally:
        os.kill(child, signal.SIGKILL)
        process.kill()
        assert look_at(process.pid).dead or process.wait() is not None
    process.wait()
    assert look_at(process.pid).dead
