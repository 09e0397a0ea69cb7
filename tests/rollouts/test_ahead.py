"""Rollouts sampled ahead: which weights sample what does not depend on who is faster, and nothing is left running."""

import random
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.rollouts.ahead import RolloutsAhead
from tests.effort import draws

WAIT_SECONDS = 60


class FakeSampler:
    """``step`` calls ``action``; the rest of the protocol is there and does nothing."""

    def __init__(self, action=lambda: None):
        self.version, self.action = 0, action
        self.can_open = self.open_group = self.close_group = self.room = self.append = self.request = lambda *_: None

    def step(self):
        return self.action() or []


def sampled_with(sampler):
    """A rollout that begins with some version, takes some steps, and says with which versions it did so."""

    def roll_out(turns, step):
        seen = {sampler.version}
        for _ in range(3):
            turns.step()
            seen.add(sampler.version)
        return step, seen

    return roll_out


@settings(max_examples=draws(20), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_weights_are_one_version_behind_whoever_is_faster(seed):
    hasty = random.Random(seed)

    def dawdle():
        time.sleep(hasty.choice([0.0, 0.0, 0.001]))

    sampler = FakeSampler(dawdle)
    ahead, taken = RolloutsAhead(sampled_with(sampler), sampler), []
    for step in range(4):
        taken.append(ahead.take(step))
        if step < 3:
            ahead.begin(step + 1)
        with ahead.learner_turn():
            dawdle()
        ahead.wait()
        sampler.version = step + 1
    assert taken == [(0, {0}), (1, {0}), (2, {1}), (3, {2})]
    assert ahead.pending is None
    ahead.close()


def test_what_is_not_begun_is_sampled_on_the_spot():
    sampler = FakeSampler()
    ahead, here = RolloutsAhead(lambda *_: threading.current_thread(), sampler), threading.current_thread()
    assert ahead.take(0) is here
    ahead.begin(1)
    assert ahead.take(1) is not here
    ahead.close()


def test_a_pending_rollout_is_taken_first_and_once():
    ahead = RolloutsAhead(lambda _, step: step, FakeSampler(), pending="kept")
    assert ahead.pending == "kept"
    with pytest.raises(RuntimeError, match="take it before that of step 9 is begun"):
        ahead.begin(9)
    assert [ahead.take(5), ahead.take(6)] == ["kept", 6]
    ahead.begin(7)
    with pytest.raises(RuntimeError, match="take it before that of step 8 is begun"):
        ahead.begin(8)
    ahead.wait()
    assert ahead.pending == 7
    ahead.close()


@pytest.mark.parametrize("ask", [lambda ahead: ahead.wait(), lambda ahead: ahead.take(1)])
def test_what_sampling_raises_comes_out(ask):
    def roll_out(sampler, step):
        raise ValueError(f"no task of step {step} fits")

    ahead = RolloutsAhead(roll_out, FakeSampler())
    ahead.begin(1)
    with pytest.raises(ValueError, match="no task of step 1 fits"):
        ask(ahead)
    ahead.close()


def endless(sampler, step):
    while True:
        sampler.step()


def test_closing_ends_a_rollout_in_the_middle():
    """As Ctrl-C does, while the update runs or while the rollout is waited for."""
    begun = threading.Event()
    ahead = RolloutsAhead(endless, FakeSampler(begun.set))
    ahead.begin(1)
    assert begun.wait(WAIT_SECONDS)
    closing = threading.Thread(target=ahead.close, daemon=True)
    closing.start()
    closing.join(WAIT_SECONDS)
    assert not closing.is_alive()


def test_the_learner_goes_before_the_next_call_of_the_sampler():
    order, inside, go_on = [], threading.Event(), threading.Event()

    def action():
        order.append("sampler")
        inside.set()
        assert go_on.wait(WAIT_SECONDS)

    ahead = RolloutsAhead(endless, FakeSampler(action))
    ahead.begin(1)
    assert inside.wait(WAIT_SECONDS)

    def learn():
        with ahead.learner_turn():
            order.append("learner")

    learning = threading.Thread(target=learn)
    learning.start()
    while not ahead._turns._gate.locked():
        time.sleep(0.001)
    assert order == ["sampler"]  # its call is under way, so the learner waits
    go_on.set()
    learning.join()
    ahead.close()
    assert order[:2] == ["sampler", "learner"]
