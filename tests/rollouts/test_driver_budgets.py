"""Budgets of a rollout: each is passed on turn by turn, and what does not fit is dropped whole."""

import dataclasses

from rlagents.sampling.turns import StopReason
from rlagents.types import Kind
from tests.rollouts.fakes import FakeSampler
from tests.rollouts.playing import CHAT, LIMITS, play, run


def test_a_turn_cut_by_its_limit_is_not_executed_and_truncates():
    limits = dataclasses.replace(LIMITS, max_turn_tokens=4)
    trajectory = run(play("add 2", "add 1 and then some more words", "done"), limits=limits).groups[0][0]
    assert trajectory.truncated
    assert list(trajectory.stop_reasons) == [StopReason.STOP_TOKEN, StopReason.LENGTH]
    assert trajectory.turn_facts[1].void
    assert trajectory.outcome.named["steps"] == 1.0  # the cut turn never reached the environment
    assert len(trajectory.token_ids) == len(trajectory.kinds)
    assert trajectory.kinds[-1] == Kind.MODEL


def test_the_budget_is_passed_to_the_sampler_turn_by_turn_and_never_exceeded():
    for budget in range(2, 60):
        limits = dataclasses.replace(LIMITS, max_response_tokens=budget)
        sampler = FakeSampler(CHAT, play("add 1 and words", "add 2 and words", "done"))
        trajectory = run(None, sampler=sampler, limits=limits).groups[0][0]
        assert len(trajectory.token_ids) <= budget
        # Nothing but whole turns and whole observations, or one turn cut at its end.
        whole = CHAT.decode([*trajectory.prompt_ids, *trajectory.token_ids])
        assert CHAT.render(trajectory.messages, None, False).startswith(whole)
        assert trajectory.truncated == (trajectory.messages[-1]["content"] != "done")
        assert sampler.requests[0][2] == min(64, budget)


def test_an_observation_too_long_for_the_budget_is_dropped_whole():
    result = run(play("add 1", "flood 600", "done"))
    trajectory = result.groups[0][0]
    assert trajectory.truncated
    assert "xx" not in CHAT.decode(trajectory.token_ids)
    assert all("xx" not in message["content"] for message in trajectory.messages)
    assert trajectory.kinds[-1] == Kind.MODEL
    assert trajectory.num_turns == 2
    assert trajectory.outcome.named["steps"] == 2.0  # executed, only not shown
    assert result.counts["observations_dropped"] == 2
    assert result.counts["trajectories_truncated"] == 2


def test_an_observation_that_just_fits_is_kept_and_one_token_less_is_not():
    whole = run(play("add 1", "done")).groups[0][0]
    with_observation = max(i for i, kind in enumerate(whole.kinds) if kind == Kind.TOOL) + 1
    for budget, kept in ((with_observation + 1, True), (with_observation, False)):
        limits = dataclasses.replace(LIMITS, max_response_tokens=budget)
        trajectory = run(play("add 1", "done"), limits=limits).groups[0][0]
        assert (Kind.TOOL in trajectory.kinds) == kept
        assert trajectory.truncated


def test_the_sampler_s_room_is_respected_too():
    limits, cut = dataclasses.replace(LIMITS, max_turns=50), 0
    for room in range(3, 60):
        sampler = FakeSampler(CHAT, play(*["add 1"] * 50), max_member_tokens=room)
        trajectory = run(None, sampler=sampler, limits=limits).groups[0][0]
        assert trajectory.truncated
        assert len(sampler.finished[0].ids) <= room
        # A turn cut by the end of the room is not executed.
        is_cut = trajectory.stop_reasons[-1] == StopReason.BUDGET
        assert trajectory.outcome.named["steps"] == trajectory.num_turns - is_cut
        cut += is_cut
    assert cut > 0


def test_a_member_without_room_for_a_turn_ends_without_one():
    sampler = FakeSampler(CHAT, play("2"), max_member_tokens=4)
    trajectory = run(None, sampler=sampler, forced_prefix=CHAT.encode("add and more")).groups[0][0]
    assert trajectory.truncated
    assert trajectory.num_turns == len(trajectory.token_ids) == 0
    assert trajectory.outcome.named["steps"] == 0.0


def test_the_turn_limit_truncates():
    limits = dataclasses.replace(LIMITS, max_turns=3)
    result = run(play(*["add 1"] * 10), limits=limits)
    trajectory = result.groups[0][0]
    assert trajectory.truncated
    assert trajectory.num_turns == 3
    assert trajectory.outcome.named["steps"] == 3.0
    assert trajectory.kinds[-1] == Kind.MODEL
    assert result.counts["turn_limit_reached"] == 2
    # Over in its last turn is not truncated.
    assert not run(play("add 1", "add 1", "done"), limits=limits).groups[0][0].truncated
