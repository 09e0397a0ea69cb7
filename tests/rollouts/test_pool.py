"""Workers that raise, hang, flood and die: an observation each, and nobody else notices."""

import os
import signal
import subprocess
import sys
import time

import pytest

from rlagents.facts import Task, Transcript
from rlagents.rollouts.episodes import EpisodeRules
from rlagents.rollouts.faults import Lost, Stepped, ToolFault
from rlagents.rollouts.local_pool import LocalPool
from rlagents.rollouts.pool import ProcessPool
from tests.rollouts.worlds import CountingEnvironment, DiesAtFork, NeedsJax

RULES = EpisodeRules(max_observation_chars=100_000)
TASK = Task("t")


class Asker:
    """Waits for single answers."""

    def __init__(self, pool):
        self.pool, self.answers = pool, {}

    def wait(self, ticket, seconds=20.0):
        deadline = time.monotonic() + seconds
        while ticket not in self.answers:
            assert time.monotonic() < deadline, "no answer"
            self.answers.update(self.pool.poll(0.05))
        return self.answers.pop(ticket)

    def start(self, task=TASK):
        episode = self.pool.start(task)
        assert self.wait(episode) is None
        return episode

    def step(self, episode, text):
        return self.wait(self.pool.step(episode, text))

    def said(self, episode, text):
        stepped = self.step(episode, text)
        assert isinstance(stepped, Stepped)
        assert stepped.fault is None, stepped
        return stepped.observation.messages[0]["content"]

    def pid(self):
        """Process of the least busy worker, asked in an episode of its own: a replay would not answer alike."""
        episode = self.start()
        pid = int(self.said(episode, "pid"))
        self.pool.abandon(episode)
        return pid

    def finish(self, episode):
        return self.wait(self.pool.finish(episode))


@pytest.fixture(scope="module")
def one_worker():
    """One process, so that every episode is a sibling of the others."""
    with ProcessPool(
        CountingEnvironment(),
        num_workers=1,
        step_timeout_seconds=0.5,
        rules=RULES,
        worker_memory_bytes=2 << 30,
        max_reply_bytes=1 << 20,
    ) as pool:
        yield Asker(pool)


@pytest.fixture(params=["processes", "local"])
def any_pool(request, one_worker):
    return one_worker if request.param == "processes" else Asker(LocalPool(CountingEnvironment(), rules=RULES))


def is_fault(stepped, fault):
    return stepped.fault == fault and not stepped.observation.done and stepped.observation.turn.tool_successes == 0


@pytest.mark.parametrize(
    ("command", "fault", "says"),
    [
        ("raise a", ToolFault.RAISED, "KeyError: 'a'"),
        ("exit", ToolFault.RAISED, "SystemExit"),
        ("unheard_of", ToolFault.RAISED, "AttributeError"),
        ("bytes", ToolFault.MALFORMED, "content is a bytes"),
        ("parts", ToolFault.MALFORMED, "content is a list"),
        ("surrogate", ToolFault.MALFORMED, "not valid Unicode"),
        ("nothing", ToolFault.MALFORMED, "NoneType"),
        ("no_list", ToolFault.MALFORMED, "NoneType"),
        ("nan", ToolFault.MALFORMED, "finite"),
        ("unpicklable", ToolFault.MALFORMED, "between processes"),
        ("flood 200000", ToolFault.FLOODED, "200000 characters"),
    ],
)
def test_what_the_environment_does_wrong_is_an_observation_and_the_episode_goes_on(any_pool, command, fault, says):
    episode = any_pool.start()
    assert any_pool.said(episode, "add 2") == "total 2"
    stepped = any_pool.step(episode, command)
    assert is_fault(stepped, fault)
    (message,) = stepped.observation.messages
    assert message["role"] == "tool"
    assert message["content"].startswith("Error: ")
    assert says in message["content"]
    assert any_pool.said(episode, "add 3") in ("total 5", "total 1005")  # what raised keeps what it had changed
    assert any_pool.finish(episode)["steps"] == 3


@pytest.mark.parametrize(
    ("command", "fault", "says"),
    [
        ("hang", ToolFault.TIMED_OUT, "timed out after 0.5 s"),
        ("die", ToolFault.DIED, "process died"),
        ("flood_aside 5000000", ToolFault.FLOODED, "too much"),
    ],
)
def test_a_lost_worker_is_replaced_and_its_episodes_are_as_they_were(one_worker, command, fault, says):
    replaced = one_worker.pool.counts["workers_replaced"]
    siblings = [one_worker.start() for _ in range(3)]
    for number, sibling in enumerate(siblings):
        one_worker.said(sibling, f"add {number}")
    one_worker.step(siblings[2], "raise b")  # changes the state before it raises: the replay must do so too
    offender = one_worker.start()
    one_worker.said(offender, "add 7")
    before = one_worker.pid()
    tickets = [one_worker.pool.step(offender, command), *(one_worker.pool.step(s, "add 10") for s in siblings)]
    stepped, *others = [one_worker.wait(ticket) for ticket in tickets]
    assert is_fault(stepped, fault)
    assert says in stepped.observation.messages[0]["content"]
    assert [o.observation.messages[0]["content"] for o in others] == ["total 10", "total 11", "total 1012"]
    assert one_worker.said(siblings[0], "add 0") == "total 10"
    # The offending step left no trace, not even what it had done before it hung.
    assert one_worker.said(offender, "add 1") == "total 8"
    assert one_worker.pool.counts["workers_replaced"] == replaced + 1
    record = one_worker.finish(siblings[0])
    assert record["pid"] != before
    assert one_worker.finish(siblings[2])["total"] == 1012
    for episode in (offender, siblings[1]):
        one_worker.pool.abandon(episode)


def test_a_tool_cannot_interrupt_its_worker(one_worker):
    episode = one_worker.start()
    assert is_fault(one_worker.step(episode, "interrupt"), ToolFault.RAISED)
    assert one_worker.said(episode, "add 1") == "total 1"


def test_workers_that_cannot_live_are_not_replaced_for_ever():
    with ProcessPool(DiesAtFork(), num_workers=1) as pool:
        with pytest.raises(RuntimeError, match="supervisor") as error:
            Asker(pool).wait(-1)
        assert "worker_memory_bytes" in str(error.value.__cause__)


def test_what_tools_print_goes_nowhere(one_worker):
    assert one_worker.said(one_worker.start(), "print") == "/dev/null /dev/null /dev/null"


def test_memory_beyond_the_limit_is_the_tool_s_error(one_worker):
    episode = one_worker.start()
    stepped = one_worker.step(episode, f"allocate {4 << 30}")
    assert is_fault(stepped, ToolFault.RAISED)
    assert "MemoryError" in stepped.observation.messages[0]["content"]


def test_an_episode_that_cannot_be_replayed_is_lost_and_only_that_one(one_worker):
    strange, sane, offender = (one_worker.start() for _ in range(3))
    one_worker.said(strange, "random")
    one_worker.said(sane, "add 4")
    before = one_worker.pool.counts["episodes_rebuilt"]
    assert one_worker.step(offender, "die").fault == ToolFault.DIED
    assert one_worker.said(sane, "add 0") == "total 4"
    rebuilt = one_worker.pool.counts["episodes_rebuilt"]
    lost = one_worker.step(strange, "add 1")
    assert isinstance(lost, Lost)
    assert "not deterministic" in lost.reason
    # What is lost is not rebuilt again.
    one_worker.step(offender, "die")
    again = one_worker.pool.counts["episodes_rebuilt"] - rebuilt
    assert again == rebuilt - before - 1
    assert isinstance(one_worker.finish(strange), Lost)


def test_an_episode_whose_replay_kills_the_worker_is_lost_and_the_others_come_back(one_worker, tmp_path):
    marker = tmp_path / "marker"
    marker.write_text("alive")
    deadly, sane, offender = (one_worker.start() for _ in range(3))
    one_worker.said(deadly, f"die_once {marker}")
    one_worker.said(sane, "add 4")
    marker.unlink()
    assert one_worker.step(offender, "die").fault == ToolFault.DIED
    assert one_worker.said(sane, "add 0") == "total 4"
    assert isinstance(one_worker.step(deadly, "add 1"), Lost)


@pytest.mark.parametrize("payload", ["bad_start", "bad_record"])
def test_an_episode_without_a_world_or_a_record_is_lost(any_pool, payload):
    episode = any_pool.pool.start(Task("t", {payload: True}))
    started, finished = any_pool.wait(episode), any_pool.wait(any_pool.pool.finish(episode))
    assert isinstance(started, Lost) == (payload == "bad_start")
    # In one process a record need not be picklable.
    assert isinstance(finished, Lost) or isinstance(any_pool.pool, LocalPool)


def test_a_worker_that_dies_at_start_loses_that_episode_only(one_worker):
    sane = one_worker.start()
    one_worker.said(sane, "add 4")
    assert isinstance(one_worker.wait(one_worker.pool.start(Task("t", {"die_at_start": True}))), Lost)
    assert one_worker.said(sane, "add 0") == "total 4"


def test_openings_and_scores(any_pool):
    assert any_pool.wait(any_pool.pool.opening(TASK)).messages[0]["content"] == "Count."
    assert isinstance(any_pool.wait(any_pool.pool.opening(Task("t", {"bad_opening": True}))), Lost)
    transcript = Transcript([], [], False, {"total": 3, "steps": 1})
    (outcome,) = any_pool.wait(any_pool.pool.score(TASK, [transcript]))
    assert outcome.reward == 3.0
    for payload, says in (("bad_score", "no judge"), ("short_score", "0 outcomes for 1 transcripts")):
        lost = any_pool.wait(any_pool.pool.score(Task("t", {payload: True}), [transcript]))
        assert isinstance(lost, Lost)
        assert says in lost.reason
    nothing = Transcript([], [], False, {"total": float("nan"), "steps": 1})
    assert isinstance(any_pool.wait(any_pool.pool.score(TASK, [nothing])), Lost)


def test_a_worker_that_is_killed_from_outside_is_replaced_while_idle(one_worker):
    episode = one_worker.start()
    one_worker.said(episode, "add 4")
    os.kill(one_worker.pid(), signal.SIGKILL)
    # Whichever comes first, the news of its death or the next request: the episode's state is what it was.
    assert one_worker.step(episode, "add 0").observation.messages[0]["content"].startswith(("total 4", "Error"))
    assert one_worker.said(episode, "add 0") == "total 4"


def test_workers_have_no_jax_even_where_the_program_has(one_worker):
    import jax  # noqa: F401

    modules = one_worker.said(one_worker.start(), "modules").split()
    assert "rlagents.rollouts.worker" in modules
    assert not {"jax", "jaxlib", "numpy"} & set(modules)


def test_an_environment_that_imports_jax_is_refused():
    with pytest.raises(RuntimeError, match="imports jax"):
        ProcessPool(NeedsJax(), num_workers=1)


def test_what_cannot_be_pickled_is_refused_where_it_is_asked_for(one_worker):
    with pytest.raises(Exception, match="pickle"):
        one_worker.pool.start(Task("t", {"f": lambda: None}))


def test_a_slow_worker_does_not_hold_up_another():
    with ProcessPool(CountingEnvironment(), num_workers=2, step_timeout_seconds=20.0) as pool:
        asker = Asker(pool)
        first, second = asker.start(), asker.start()
        assert asker.said(first, "pid") != asker.said(second, "pid")
        pool.step(first, "hang")
        begun = time.monotonic()
        assert asker.said(second, "add 1") == "total 1"
        assert time.monotonic() - begun < 10


def test_what_an_abandoned_episode_still_asks_for_is_not_run(one_worker, tmp_path):
    """Its steps would keep others waiting who share its worker."""
    running, abandoned = one_worker.start(), one_worker.start()
    step = one_worker.pool.step(running, f"wait_for {tmp_path}/go")
    one_worker.pool.step(abandoned, f"die_once {tmp_path}/ran")
    one_worker.pool.abandon(abandoned)
    (tmp_path / "go").touch()
    one_worker.wait(step)
    assert one_worker.said(running, "add 1") == "total 1"
    assert not (tmp_path / "ran").exists()


def test_a_killed_worker_takes_its_children_along(tmp_path):
    written = tmp_path / "written"
    with ProcessPool(CountingEnvironment(), num_workers=1, step_timeout_seconds=0.3) as pool:
        asker = Asker(pool)
        assert asker.step(asker.start(), f"child {written}").fault == ToolFault.TIMED_OUT
        time.sleep(1.2)
        assert not written.exists()


def test_no_process_outlives_the_program():
    program = """
import os, sys, time
from rlagents.rollouts.pool import ProcessPool
from rlagents.facts import Task
from tests.rollouts.worlds import CountingEnvironment
pool = ProcessPool(CountingEnvironment(), num_workers=1, step_timeout_seconds=500)
episode = pool.start(Task("t"))
ticket = pool.step(episode, "pid")
while True:
    for finished in pool.poll(1):
        if finished.ticket == ticket:
            pool.step(episode, "hang")
            print(finished.value.observation.messages[0]["content"], flush=True)
            time.sleep(0.2)
            os._exit(9)
"""
    ran = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=30, check=False)
    assert ran.returncode == 9
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{ran.stdout.strip()}"):
        assert time.monotonic() < deadline, "the hanging worker is still there"
        time.sleep(0.05)
