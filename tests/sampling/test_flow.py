"""Rows in flight: those that wait for a tool hold nobody up and cost nothing."""

from rlagents.sampling import StreamKey
from rlagents.sampling.device import Device
from rlagents.sampling.rows import Row
from tests.sampling.support import KEYS, Member, Script, check_member, make_sampler, play


def steps_until(sampler, rows):
    """Step until all these rows have ended their turns; returns how many steps it took and the turns."""
    turns, steps = {}, 0
    while not set(rows) <= set(turns):
        turns |= {turn.row: turn for turn in sampler.step()}
        steps += 1
        assert steps < 50
    return steps, turns


def test_a_waiting_member_does_not_stop_the_others():
    sampler = make_sampler(decode_rows=2)
    group = sampler.open_group([[1, 2]] * 6, KEYS)
    sampler.request(group.rows[0], 4)
    steps_until(sampler, group.rows[:1])
    # Row 0 now waits for its tool; four others share the two places.
    for row in group.rows[1:5]:
        sampler.request(row, 8)
    steps, turns = steps_until(sampler, group.rows[1:5])
    assert steps == 4
    assert group.rows[0] not in turns
    sampler.append(group.rows[0], [7, 8, 9])
    sampler.request(group.rows[0], 4)
    assert steps_until(sampler, group.rows[:1])[0] == 1


def test_first_asked_first_decoded():
    sampler = make_sampler(decode_rows=2)
    group = sampler.open_group([[1, 2]] * 4, KEYS)
    for row in (group.rows[2], group.rows[0], group.rows[3], group.rows[1]):
        sampler.request(row, 8)
    assert {turn.row for turn in sampler.step() + sampler.step()} == {group.rows[2], group.rows[0]}
    assert {turn.row for turn in sampler.step() + sampler.step()} == {group.rows[3], group.rows[1]}


def test_waiting_costs_no_device_work(monkeypatch):
    calls = []
    for name in ("prefill", "extend", "decode"):
        method = getattr(Device, name)
        monkeypatch.setattr(Device, name, lambda *args, name=name, method=method: calls.append(name) or method(*args))
    sampler = make_sampler()
    group = sampler.open_group([[1, 2]] * 3, KEYS)
    sampler.append(group.rows[0], [1, 2, 3])
    assert sampler.step() == []
    assert calls == []
    sampler.request(group.rows[0], 4)
    sampler.step()
    assert calls == ["prefill", "extend", "decode"]
    sampler.step()
    assert calls == ["prefill", "extend", "decode"]


def test_history_is_not_computed_again(monkeypatch):
    """At the second turn only the new tokens are fed: the turn's last, the reply but its last."""
    sampler = make_sampler(extend_chunk_tokens=4)
    group = sampler.open_group([[1, 2, 3, 4, 5, 6, 7, 8]] * 2, KEYS)
    row = group.rows[0]
    sampler.request(row, 6)
    last = steps_until(sampler, [row])[1][row].token_ids[-1]
    calls = []
    prefill, feed = Device.prefill, Row.feed
    monkeypatch.setattr(Device, "prefill", lambda self, new: calls.append(dict(new)) or prefill(self, new))
    monkeypatch.setattr(Row, "feed", lambda self, count: calls.append(feed(self, count)) or calls[-1])
    sampler.append(row, [1, 2, 3, 4])
    sampler.request(row, 1)
    steps_until(sampler, [row])
    assert calls == [{}, [last, 1, 2, 3]]


def test_a_finished_group_makes_way_for_the_next():
    sampler = make_sampler()
    scripts = [Script([[i, 1]] * 2, StreamKey(0, 0, 0, i), [[2]], max_new_tokens=3) for i in range(5)]
    assert [len(members) for members in play(sampler, scripts)] == [2] * 5
    assert sampler.can_open(6)


def test_closing_drops_turns_in_progress():
    sampler = make_sampler()
    group = sampler.open_group([[1, 2]] * 3, KEYS)
    other = sampler.open_group([[1, 2]] * 3, KEYS)
    for row in group.rows + other.rows:
        sampler.request(row, 10)
    sampler.step()
    sampler.close_group(group)
    _, turns = steps_until(sampler, other.rows)
    assert set(turns) == set(other.rows)


def test_a_block_ends_when_all_its_rows_have_stopped():
    """Steps that were not taken leave zeros behind."""
    sampler = make_sampler()
    blocks, decode = [], sampler._device._decode
    sampler._device._decode = lambda *args, **kwargs: blocks.append(decode(*args, **kwargs)) or blocks[-1]
    group = sampler.open_group([[1, 2]] * 3, KEYS)
    for row, limit in zip(group.rows, (1, 2, 2), strict=True):
        sampler.request(row, limit)
    assert len(sampler.step()) == 3
    ((_, sampled),) = blocks
    assert sampled.log_prob[:2].any(axis=1).all()
    assert not sampled.log_prob[2:].any()


def test_rows_that_are_free_take_nobody_s_place():
    """A group whose rows lie apart, with free rows between them, no more rows to a prefix than its members."""
    sampler = make_sampler(largest_group=1)
    first, second = sampler.open_group([[9]], KEYS), sampler.open_group([[8]] * 2, KEYS)
    sampler.close_group(first)
    group = sampler.open_group([[1, 2, 3]] * 2, KEYS)
    assert (group.slot, group.rows) == (0, (0, 3))
    sampler.close_group(second)
    for row in group.rows:
        sampler.request(row, 5)
    _, turns = steps_until(sampler, group.rows)
    for number, row in enumerate(group.rows):
        conversation = [1, 2, 3, *turns[row].token_ids]
        assert check_member(Member((*KEYS, number), conversation, [(3, turns[row])])) == 5
