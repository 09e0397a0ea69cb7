"""Each kind of failure comes to what its row says, and who has no part in it is as ever."""

import pytest

from tests.rollouts import fault_table
from tests.rollouts.fault_table import HEALTHY, ROWS, Row, play


@pytest.fixture(scope="module")
def workers():
    with fault_table.pool() as pool:
        yield pool


@pytest.fixture(scope="module")
def healthy(workers):
    """What the four members come to where nothing goes wrong."""
    found = play(Row("nothing fails"), workers)
    assert found.sees == fault_table.NOTHING
    assert found.counts == {}
    return {(member.stream, member.member): member for member in found.others}


def test_kinds_differ():
    assert len({row.failure for row in ROWS}) == len(ROWS) >= 15


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.failure)
def test_what_becomes_of_a_failure(row, workers, healthy):
    found = play(row, workers)
    assert found.sees.startswith(row.sees)
    assert row.sees
    assert found.counts == row.counted
    assert len(found.others) >= 2
    for member in found.others:
        # Text, tokens, masks, log-probs, facts and reward: all of it.
        assert member == healthy[member.stream, member.member]
        assert member.outcome.reward == 3.0
        assert member.num_turns == len(HEALTHY)


def test_the_table_is_what_was_found():
    table = fault_table.markdown([row for row in ROWS if row.failure in ("raises", "scoring raises")])
    assert table.splitlines()[2:] == [
        "| raises | observation: \"KeyError: 'x'\" | tool_raised 1 |",
        "| scoring raises | the group is invalid | trajectories_lost 2 |",
    ]
