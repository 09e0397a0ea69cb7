"""Calls read only as much of the buffers as somebody needs, in a few sizes; what they read does not show."""

import hypothesis.strategies as st
from hypothesis import given

from rlagents.sampling import StreamKey
from rlagents.sampling.sizes import Sizes
from tests.sampling.support import KEYS, Script, check_member, make_sampler, play

WIDTHS = {
    "num_groups": 1,
    "num_rows": 1,
    "decode_rows": 1,
    "extend_rows": 1,
    "prefill_groups": 1,
    "extend_chunk_tokens": 1,
    "block_steps": 1,
}


@given(st.integers(1, 3000), st.data())
def test_enough_is_read_and_not_much_more(size, data):
    needed = data.draw(st.integers(0, size))
    sizes = Sizes(**WIDTHS, max_prefix_tokens=size, max_member_tokens=size)
    prefill, (prefix, own) = sizes.prefill_tokens(needed), sizes.window(needed, needed)
    assert needed <= prefill <= min(size, max(2 * needed, 127))
    assert needed <= own <= min(size, max(2 * needed, 127, size / 4 + 1))
    assert needed <= prefix <= min(size, max(2 * needed, 127, size / 2 + 1))


def test_few_sizes_are_ever_read():
    sizes = Sizes(**WIDTHS, max_prefix_tokens=4000, max_member_tokens=4000)
    assert {sizes.window(0, n).own_tokens for n in range(4001)} == {1000, 2000, 3000, 4000}
    assert {sizes.window(n, 0).prefix_tokens for n in range(4001)} == {2000, 4000}


def test_conversations_that_grow_through_the_windows():
    """Rows of 80, 120 and 160 tokens are read, prefixes of 65 and of 130; short and long members side by side."""
    sampler = make_sampler(max_prefix_tokens=130, max_member_tokens=160, extend_chunk_tokens=32)
    window = sampler._device.sizes.window
    assert [window(n, n) for n in (10, 100, 140)] == [(65, 80), (130, 120), (130, 160)]
    short, long = [[1, 2, 3]] * 3, [[i % 29 for i in range(100)] + [j] for j in range(2)]
    scripts = [
        Script(short, KEYS, [[5] * 30, [6] * 30], max_new_tokens=20),
        Script(long, StreamKey(0, 0, 0, 1), [[5] * 60, [6] * 3], max_new_tokens=20),
        Script(short, StreamKey(0, 0, 0, 2), [[7]], max_new_tokens=3),
    ]
    played = play(sampler, scripts)
    assert sum(check_member(member) for members in played for member in members) == 3 * 60 + 2 * 60 + 3 * 6


def test_a_turn_that_grows_through_the_windows():
    """A block that begins inside the small window and ends outside reads, and writes, the large one."""
    sampler = make_sampler(max_prefix_tokens=130, max_member_tokens=160, extend_chunk_tokens=32)
    (members,) = play(sampler, [Script([[1, 2, 3]] * 3, KEYS, max_new_tokens=110)])
    assert sum(check_member(member) for member in members) == 3 * 110
