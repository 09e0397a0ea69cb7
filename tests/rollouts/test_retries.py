"""A remote tool that is away is asked again: later and later, in the episode's order, as often as is allowed."""

import time

import pytest

from rlagents.facts import Task
from rlagents.rollouts.faults import Lost
from rlagents.rollouts.jobs import Job, Waiting
from rlagents.rollouts.local_pool import LocalPool
from rlagents.rollouts.retries import Retries
from tests.rollouts.test_pool import Asker
from tests.rollouts.worlds import CountingEnvironment


def test_waits_double_and_differ_between_calls_but_not_between_runs():
    retries = Retries(most=5, seconds=0.5)
    waits = [retries.wait_seconds(attempt, call=3) for attempt in range(4)]
    for attempt, wait in enumerate(waits):
        assert 0.25 * 2**attempt <= wait < 0.75 * 2**attempt
    assert waits == [retries.wait_seconds(attempt, call=3) for attempt in range(4)]
    assert len({retries.wait_seconds(0, call) for call in range(50)}) == 50


def test_nobody_waits_longer_than_a_minute():
    assert Retries(seconds=1.0).wait_seconds(10**6, 0) == 60.0


def job(number, episode, not_before=0.0):
    made = Job(number, "step", (episode, "add 1"), episode, 1.0)
    made.not_before = not_before
    return made


def test_an_episode_keeps_its_order_while_others_pass_by():
    waiting, later = Waiting(), time.monotonic() + 1000
    for made in (job(1, 7, later), job(2, 7), job(3, 8), job(4, None, later), job(5, None), job(6, 8)):
        waiting.append(made)
    assert [waiting.take().ticket for _ in range(3)] == [3, 5, 6]
    assert waiting.take() is None
    assert waiting.next_time() == later  # what waits for another of its episode is not due
    assert len(waiting) == 3
    waiting.drop_episode(7)
    assert (len(waiting), waiting.next_time()) == (1, later)


def test_what_is_put_first_is_taken_first_and_in_order():
    waiting = Waiting()
    waiting.append(job(3, 1))
    waiting.put_first([job(1, 1), job(2, 1)])
    assert [waiting.take().ticket for _ in range(3)] == [1, 2, 3]
    assert waiting.next_time() is None


@pytest.mark.parametrize(("away", "lost"), [(0, False), (2, False), (3, True)])
def test_one_process_asks_again_too(away, lost, tmp_path):
    asker = Asker(LocalPool(CountingEnvironment(), retries=Retries(most=2, seconds=0.001)))
    episode = asker.start(Task("t"))
    stepped = asker.step(episode, f"remote {away} {tmp_path}")
    assert isinstance(stepped, Lost) == lost
    assert asker.pool.counts["calls_retried"] == min(away, 2)
    assert len(list(tmp_path.iterdir())) == min(away, 2) + 1
    assert isinstance(asker.finish(episode), Lost) == lost
