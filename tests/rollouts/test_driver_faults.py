"""What goes wrong in a world: what is lost, what is an observation, and that siblings stay as they were."""

import pytest

from rlagents.rollouts.pool import ProcessPool
from tests.rollouts.playing import ENVIRONMENT, play, run, tasks


@pytest.mark.parametrize("payload", ["bad_score", "short_score"])
def test_a_group_that_cannot_be_scored_is_lost_not_scored_zero(payload):
    result = run(play("add 2", "done"), tasks({payload: True}, {}))
    assert [[t.valid for t in group] for group in result.groups] == [[False, False], [True, True]]
    assert all(t.outcome is None and t.lost for t in result.groups[0])
    assert result.counts["trajectories_lost"] == 2


def test_tasks_without_an_opening_are_skipped():
    result = run(play("done"), tasks({}, {"bad_opening": True}, {}))
    assert [group[0].stream for group in result.groups] == [10, 12]
    assert "no such task" in result.skipped[0].reason
    assert result.counts["openings_lost"] == 1


def test_an_episode_that_cannot_start_is_lost():
    result = run(play("add 1", "done"), tasks({"bad_start": True}))
    assert [t.valid for t in result.groups[0]] == [False, False]
    assert "no world" in result.groups[0][0].lost
    assert result.groups[0][0].num_turns == 1  # its tokens are kept for the log


def test_a_member_without_a_record_is_lost_and_its_sibling_is_scored():
    group = run(lambda stream, member, turn: [["spoil", "add 3"][member], "done"][turn]).groups[0]
    assert [t.valid for t in group] == [False, True]
    assert "no record" in group[0].lost
    assert group[1].outcome.reward == 3.0


def test_one_hanging_and_one_dying_tool_leave_their_siblings_as_they_were():
    def script(stream, member, turn):
        mishap = {(10, 0, 1): "hang", (10, 1, 2): "die", (11, 0, 1): "bytes", (11, 1, 1): "raise x"}
        return mishap.get((stream, member, turn), ["add 1", "add 2", "add 3", "add 4", "done"][turn])

    with ProcessPool(ENVIRONMENT, num_workers=1, step_timeout_seconds=0.5) as pool:
        result = run(script, tasks({}, {}), pool=pool)
    totals = [[t.outcome.reward for t in group] for group in result.groups]
    assert totals == [[8.0, 7.0], [8.0, 1008.0]]
    errors = [m["content"] for group in result.groups for t in group for m in t.messages if "Error" in m["content"]]
    assert [error.split(":")[1].strip()[:20] for error in errors] == [
        "the tool timed out a", "the tool's process d", "the environment's an", "KeyError",
    ]  # fmt: skip
    assert all(t.valid for group in result.groups for t in group)
    expected = {"tool_timed_out": 1, "tool_died": 1, "tool_malformed": 1, "tool_raised": 1, "workers_replaced": 2}
    assert {name: result.counts[name] for name in expected} == expected


def test_an_episode_that_cannot_be_rebuilt_is_lost_and_its_sibling_is_scored():
    def script(stream, member, turn):
        return [["random", "die"][member], "add 5", "done"][turn]

    # With one worker the first has answered before the second takes it down.
    with ProcessPool(ENVIRONMENT, num_workers=1) as pool:
        result = run(script, pool=pool)
    first, second = result.groups[0]
    assert not first.valid
    assert "not deterministic" in first.lost
    assert first.outcome is None
    assert second.valid
    assert second.outcome.reward == 5.0
