"""A token depends on what it is, not on where it is computed: slot, row, company, block, order, sharing."""

import dataclasses

import numpy as np
import pytest

from rlagents.sampling import Domain, SamplingRule, StreamKey
from tests.sampling.support import KEYS, Script, check_member, make_sampler, play

REPLIES = [[20, 21, 22, 23, 24, 25]]
SCRIPTS = [
    Script([[1, 2, 3, 4], [1, 2, 3, 5, 6], [1, 2, 3, 4]], StreamKey(0, 7, 1, 0), REPLIES),
    Script([[8, 9], [8, 10, 11]], StreamKey(0, 7, 1, 1), REPLIES),
    Script([[12], [13, 14, 15, 16, 17, 18, 19]], StreamKey(0, 7, 1, 2), REPLIES),
]


@pytest.fixture(scope="module")
def expected():
    """Each group alone in a sampler of its own, judged token by token."""
    alone = [play(make_sampler(), [script])[0] for script in SCRIPTS]
    assert sum(check_member(member) for members in alone for member in members) == 7 * 10
    return [[member.sampled for member in members] for members in alone]


def tokens(played):
    return [[member.sampled for member in members] for members in played]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_groups": 3, "num_rows": 8, "decode_rows": 3, "block_steps": 3},
        {"num_groups": 3, "num_rows": 7, "decode_rows": 7, "block_steps": 1, "prefill_groups": 2},
    ],
)
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_same_keys_same_tokens(expected, changes, order):
    played = play(make_sampler(**changes), [SCRIPTS[i] for i in order])
    assert tokens(played) == [expected[i] for i in order]


def test_used_slots_give_what_fresh_ones_give(expected):
    sampler = make_sampler()
    long = Script([[5] * 17 + [i] for i in range(6)], StreamKey(0, 0, 0, 0), [[3] * 4], max_new_tokens=6)
    play(sampler, [long])
    assert tokens(play(sampler, SCRIPTS)) == expected


def test_sharing_nothing_gives_the_same_tokens(expected):
    """Whole prompts are the members' own."""
    assert tokens(play(make_sampler(max_prefix_tokens=0), SCRIPTS)) == expected
    assert tokens(play(make_sampler(share_prefix=False), SCRIPTS)) == expected


def test_members_of_a_group_differ():
    (members,) = play(make_sampler(), [Script([[1, 2, 3]] * 6, KEYS, max_new_tokens=8)])
    assert len({tuple(member.sampled[0]) for member in members}) == 6


def test_every_part_of_the_key_matters():
    base = StreamKey(Domain.TRAIN, 1, 1, 1)
    scripts = [
        Script([[1, 2, 3]], keys, max_new_tokens=8)
        for keys in (base, *(base._replace(**{name: 2}) for name in base._fields))
    ]
    drawn = [members[0].sampled[0] for members in play(make_sampler(), scripts)]
    assert len(set(map(tuple, drawn))) == 5


def test_no_noise_is_used_twice_when_the_model_repeats_itself():
    """One token a turn, over and over: position moves the key on, though the row's history of turns is the same."""
    (members,) = play(make_sampler(), [Script([[1]], KEYS, replies=[[1]] * 7, max_new_tokens=1)])
    assert check_member(members[0]) == 8


def test_generate_without_a_seed_never_repeats():
    sampler = make_sampler()
    calls = [sampler.generate([[1, 2, 3]], 8)[0][0].token_ids for _ in range(4)]
    assert len(set(map(tuple, calls))) == 4


def test_generate_with_a_seed_repeats():
    first = make_sampler().generate([[1, 2, 3], [4, 5]], 8, seed=3, members=2)
    sampler = make_sampler()
    sampler.generate([[9]], 3)
    assert sampler.generate([[1, 2, 3], [4, 5]], 8, seed=3, members=2) == first
    ids = {tuple(turn.token_ids) for turns in first for turn in turns}
    assert len(ids) == 4
    assert sampler.generate([[1, 2, 3], [4, 5]], 8, seed=4, members=2) != first


def test_generate_draws_anew_for_the_same_prompt():
    turns = make_sampler().generate([[1, 2, 3]] * 4, 8, seed=1)
    assert len({tuple(turn.token_ids) for (turn,) in turns}) == 4


def test_generate_more_prompts_than_slots():
    """Prompts wait for slots; each is drawn with the key of its place in the list."""
    sampler = make_sampler()
    prompts = [[i, 2, i] for i in range(7)]
    turns = sampler.generate(prompts, 5, seed=1, members=2)
    assert [len(members) for members in turns] == [2] * 7
    few = sampler.generate(prompts[:2], 5, seed=1, members=2)
    assert few == [[turn_in_row(turn, other) for turn, other in zip(a, b)] for a, b in zip(turns[:2], few)]


def turn_in_row(turn, other):
    """The same turn, whichever row it was in."""
    return dataclasses.replace(turn, row=other.row)


def test_greedy_is_the_most_likely_continuation():
    greedy = make_sampler(rule=SamplingRule(0.0)).generate([[1, 2, 3]], 8, members=2)[0]
    assert greedy[0].token_ids == greedy[1].token_ids
    np.testing.assert_array_equal(greedy[0].log_probs, greedy[1].log_probs)
