"""How turns end: stop tokens, stop strings, limits; and that what follows continues from the right place."""

import pytest

from rlagents.sampling import StopReason
from tests.sampling.support import KEYS, Script, check_member, letters, make_sampler, play

PROMPTS = [[1, 2, 3]] * 6
REPLIES = [[20, 21], [22]]


@pytest.fixture(scope="module")
def unstopped():
    """Twelve tokens a member with nothing to stop them."""
    (members,) = play(make_sampler(), [Script(PROMPTS, KEYS, max_new_tokens=12)])
    assert all(turn.stop_reason is StopReason.LENGTH for member in members for _, turn in member.turns)
    assert sum(check_member(member) for member in members) == 6 * 12
    return [member.sampled[0] for member in members]


@pytest.mark.parametrize("block_steps", [1, 4])
def test_any_of_the_stop_tokens_ends_a_turn_and_is_kept(unstopped, block_steps):
    stops = {unstopped[0][2], unstopped[1][5]}
    sampler = make_sampler(stop_token_ids=tuple(stops), block_steps=block_steps)
    (members,) = play(sampler, [Script(PROMPTS, KEYS, max_new_tokens=12)])
    ended = 0
    for member, free in zip(members, unstopped, strict=True):
        ((_, turn),) = member.turns
        at = next((i for i, token in enumerate(free) if token in stops), None)
        assert turn.token_ids == (free if at is None else free[: at + 1])
        assert turn.stop_reason is (StopReason.LENGTH if at is None else StopReason.STOP_TOKEN)
        assert turn.text == letters(free if at is None else free[:at])
        ended += at is not None
    assert ended >= 2


def by_the_rule(free, stops):
    for k in range(1, len(free) + 1):
        text = letters(free[:k])
        if any(stop in text for stop in stops):
            return free[:k], text[: min(text.find(stop) for stop in stops if stop in text)], StopReason.STOP_STRING
    return free, letters(free), StopReason.LENGTH


@pytest.mark.parametrize("block_steps", [1, 4])
def test_a_stop_string_ends_a_turn_wherever_blocks_end(unstopped, block_steps):
    # Three letters across tokens 2..4: a block of 4 ends inside. Two letters at tokens 8 and 9.
    stops = (letters(unstopped[0][2:5]), letters(unstopped[2][8:10]))
    sampler = make_sampler(stop_strings=stops, block_steps=block_steps)
    (members,) = play(sampler, [Script(PROMPTS, KEYS, max_new_tokens=12)])
    for member, free in zip(members, unstopped, strict=True):
        ((_, turn),) = member.turns
        assert (turn.token_ids, turn.text, turn.stop_reason) == by_the_rule(free, stops)
    assert members[0].turns[0][1].stop_reason is StopReason.STOP_STRING
    assert members[2].turns[0][1].stop_reason is StopReason.STOP_STRING


@pytest.mark.parametrize("block_steps", [1, 4])
def test_the_next_turn_continues_from_where_the_stop_string_ended(unstopped, block_steps):
    """The judge computes the whole conversation afresh: nothing of the dropped tokens may be left."""
    stops = tuple(letters(free[1:3]) for free in unstopped)
    sampler = make_sampler(stop_strings=stops, block_steps=block_steps)
    (members,) = play(sampler, [Script(PROMPTS, KEYS, REPLIES, max_new_tokens=8)])
    assert {member.turns[0][1].stop_reason for member in members} == {StopReason.STOP_STRING}
    assert all(len(member.turns[0][1].token_ids) <= 3 for member in members)
    assert sum(check_member(member) for member in members) > 50


def test_the_next_turn_may_follow_at_once(unstopped):
    """No reply in between: the un-fed last token of a turn is what the next is predicted from."""
    (members,) = play(make_sampler(), [Script(PROMPTS, KEYS, [[], []], max_new_tokens=4)])
    assert [[token for turn in member.sampled for token in turn] for member in members] == unstopped


def test_a_stop_token_that_completes_a_stop_string_is_a_stop_token(unstopped):
    token = unstopped[0][3]
    sampler = make_sampler(stop_token_ids=(token, 0), stop_strings=(letters([token]),))
    (members,) = play(sampler, [Script(PROMPTS[:1], KEYS, max_new_tokens=12)])
    ((_, turn),) = members[0].turns
    at = unstopped[0].index(token)
    assert turn.stop_reason is StopReason.STOP_TOKEN
    assert (turn.token_ids, turn.text) == (unstopped[0][: at + 1], letters(unstopped[0][:at]))


def test_a_stop_token_as_the_last_token_allowed_is_a_stop(unstopped):
    sampler = make_sampler(stop_token_ids=(unstopped[0][3], 0))
    at = unstopped[0].index(unstopped[0][3])
    (members,) = play(sampler, [Script(PROMPTS[:1], KEYS, max_new_tokens=at + 1)])
    assert members[0].turns[0][1].stop_reason is StopReason.STOP_TOKEN
