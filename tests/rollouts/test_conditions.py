"""Reward goals: who draws which, where the goal stands, and that nobody but the policy is shown it."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.facts import Opening, Task
from rlagents.rollouts.collate import collate
from rlagents.rollouts.conditions import (
    HIGH,
    LOW,
    Place,
    append_to_first_user_message,
    bernoulli,
    fixed,
    goal_messages,
    reward_goal,
    same_for_all,
    stratified,
    unconditioned,
)
from rlagents.rollouts.conversation import Conversation
from rlagents.rollouts.local_pool import LocalPool
from rlagents.sampling.keys import StreamKey
from rlagents.sampling.prompts import split_prompts
from tests.effort import draws
from tests.rollouts.fakes import FakeSampler
from tests.rollouts.playing import CHAT, play, run, tasks
from tests.rollouts.worlds import CountingEnvironment

KEY = StreamKey(domain=0, run=1, step=2, stream=3)
OPENING = Opening([{"role": "user", "content": "Count."}])
GOALS = ["\n[Reward Goal: <|low_reward|>]", "\n[Reward Goal: <|high_reward|>]"]

parts = st.integers(0, 2**32 - 1)
keys = st.builds(StreamKey, parts, parts, parts, parts)


def drawn(draw, key, group_size):
    return [draw(Place(key, member, group_size)) for member in range(group_size)]


class Showing(CountingEnvironment):
    """Keeps the transcripts that it scored."""

    def __init__(self):
        object.__setattr__(self, "shown", [])

    def opening(self, task):
        return Opening([{"role": "system", "content": "Be good."}, *super().opening(task).messages])

    def score(self, task, transcripts):
        self.shown.extend(transcripts)
        return super().score(task, transcripts)


@pytest.mark.parametrize("p", [0.0, 0.25, 0.5, 1.0])
def test_members_draw_high_with_probability_p_and_independently(p):
    groups = np.array([drawn(bernoulli(p), KEY._replace(stream=stream), 4) for stream in range(2500)])
    # Five standard errors; the draws are fixed, so this passes or fails once and for all.
    assert np.abs(groups.mean(0) - p).max() <= 5 * np.sqrt(p * (1 - p) / 2500)
    for one, other in itertools.combinations(range(4), 2):
        both = np.mean(groups[:, one] & groups[:, other])
        assert abs(both - p * p) <= 5 * np.sqrt(p * p * (1 - p * p) / 2500)


@given(key=keys, group_size=st.integers(1, 9), data=st.data())
@settings(max_examples=draws(40), deadline=None)
def test_stratified_draws_exactly_k_of_every_group(key, group_size, data):
    k = data.draw(st.integers(0, group_size))
    conditions = drawn(stratified(k), key, group_size)
    assert set(conditions) <= {LOW, HIGH}
    assert sum(conditions) == k


def test_every_set_of_k_is_as_likely():
    found = [tuple(drawn(stratified(2), KEY._replace(step=step), 4)) for step in range(1800)]
    counts = [found.count(group) for group in set(found)]
    assert len(counts) == 6
    assert max(abs(count - 300) for count in counts) <= 5 * np.sqrt(300 * 5 / 6)


@given(key=keys, other=keys, members=st.permutations(range(6)))
@settings(max_examples=draws(30), deadline=None)
def test_a_draw_is_a_function_of_its_place_whatever_was_drawn_before(key, other, members):
    for make in (lambda: bernoulli(0.5), lambda: stratified(3)):
        expected = drawn(make(), key, 6)
        again = make()
        drawn(again, other, 6)
        np.random.seed(0)
        assert [again(Place(key, member, 6)) for member in members] == [expected[member] for member in members]


@pytest.mark.parametrize("part", StreamKey._fields)
@pytest.mark.parametrize("draw", [bernoulli(0.5), stratified(32)], ids=["bernoulli", "stratified"])
def test_another_domain_run_step_or_stream_draws_anew(draw, part):
    groups = [tuple(drawn(draw, KEY._replace(**{part: value}), 64)) for value in (6, 7, 2**32 - 1)]
    assert len(set(groups)) == 3
    # Streams one apart are not shifts of one another, as they would be if parts were added up.
    assert groups[0][1:] != groups[1][:-1]


def test_draws_are_those_of_the_first_release():
    """A run resumed with another NumPy must not change its mind."""
    assert drawn(bernoulli(0.5), KEY, 12) == [1, 1, 0, 0, 1, 0, 0, 1, 1, 1, 0, 0]
    assert drawn(stratified(5), KEY, 12) == [0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0]


def test_one_condition_for_all():
    assert drawn(fixed(HIGH), KEY, 3) == [1, 1, 1]
    assert drawn(fixed(LOW), KEY, 3) == [0, 0, 0]
    assert same_for_all(Task("t"), OPENING, Place(KEY, 0, 1)) == (OPENING.messages, -1)


def test_the_goal_ends_the_first_user_message_and_no_other():
    messages = [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": "One.", "name": "ann"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "Two."},
    ]
    for condition in (LOW, HIGH):
        shown, said = reward_goal(fixed(condition))(Task("t"), Opening(messages), Place(KEY, 0, 1))
        assert said == condition
        assert shown[1] == {"role": "user", "content": f"One.{GOALS[condition]}", "name": "ann"}
        assert [*shown[:1], *shown[2:]] == [messages[0], *messages[2:]]
    assert messages[1]["content"] == "One."


def test_literals_and_template_are_the_callers():
    named = reward_goal(fixed(2), literals=("bad", "fair", "{best}"), template=' {"goal": "{}"}')
    shown, condition = named(Task("t"), OPENING, Place(KEY, 0, 1))
    assert (shown[0]["content"], condition) == ('Count. {"goal": "{best}"}', 2)


def test_a_rollout_shows_each_member_its_goal_and_writes_its_condition_down():
    sampler = FakeSampler(CHAT, play("add 2", "done"), num_rows=8)
    stream = tasks({}, {}, {})
    result = run(None, stream, sampler=sampler, group_size=4, member_messages=reward_goal(bernoulli(0.5)))
    for group, (key, prompts) in zip(result.groups, sampler.opened, strict=True):
        expected = drawn(bernoulli(0.5), key, 4)
        assert [member.condition for member in group] == expected
        for member, prompt in zip(group, prompts, strict=True):
            assert CHAT.decode(prompt).count(GOALS[member.condition] + "<|im_end|>") == 1
            assert CHAT.decode(prompt).count("Reward Goal") == 1
            assert member.messages[0]["content"] == f"Count.{GOALS[member.condition]}"
            assert "Reward Goal" not in CHAT.decode(member.token_ids)
    batch = collate(
        result.groups, prefix_buckets=(64,), member_buckets=(128,), turn_buckets=(2,), pad_prompts_to=4, named=()
    )
    conditions = [[member.condition for member in group] for group in result.groups]
    assert {0, 1} <= set(np.ravel(conditions))
    np.testing.assert_array_equal(batch.masks.condition, [*conditions, [-1] * 4])


# A reward that reads the prompt, or a judge that is told the goal, would reward the goal.
def test_the_environment_scores_its_own_opening_and_what_was_said_after_it():
    environment, plain = Showing(), Showing()
    goal = reward_goal(stratified(1))
    result = run(play("add 2", "done"), pool=LocalPool(environment), member_messages=goal)
    run(play("add 2", "done"), pool=LocalPool(plain))
    assert any("Reward Goal" in message["content"] for message in result.groups[0][0].messages)
    assert [dataclasses.replace(t, record=None) for t in environment.shown] == [
        dataclasses.replace(t, record=None) for t in plain.shown
    ]
    roles = [message["role"] for message in environment.shown[0].messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]


def test_what_is_shown_may_have_more_messages_than_the_environment_s_opening():
    def with_an_example(task, opening, place):
        example = [{"role": "user", "content": "Example?"}, {"role": "assistant", "content": "add 0"}]
        return [*example, *opening.messages], 0

    environment = Showing()
    result = run(play("done"), pool=LocalPool(environment), member_messages=with_an_example)
    assert [message["role"] for message in environment.shown[0].messages] == ["system", "user", "assistant"]
    assert len(result.groups[0][0].messages) == 5


def test_equal_openings_are_tokenised_once_a_condition(monkeypatch):
    opened, original = [], Conversation.__init__

    def count(self, chat, messages, tools=None):
        opened.append(messages)
        original(self, chat, messages, tools)

    monkeypatch.setattr(Conversation, "__init__", count)
    sampler = FakeSampler(CHAT, play("done"), num_rows=8)
    group = run(None, sampler=sampler, group_size=8, member_messages=reward_goal(stratified(3))).groups[0]
    assert sum(member.condition for member in group) == 3
    assert len(opened) == 2


def test_a_group_shares_its_prompt_up_to_the_goal():
    sampler = FakeSampler(CHAT, play("done"))
    run(None, sampler=sampler, member_messages=reward_goal(stratified(1)))
    prefix, tails = split_prompts(sampler.opened[0][1])
    shared = CHAT.decode(prefix)
    assert shared.startswith("<|im_start|>user\nCount.")
    assert shared.endswith("Goal: <")  # less its last token
    assert sorted(CHAT.decode(tail)[:7] for tail in tails) == ["|high_r", "|low_re"]


def refused(error, call, *arguments):
    with pytest.raises(ValueError, match=error):
        call(*arguments)


def test_what_cannot_be_drawn_or_told_is_refused():
    for p in (-0.1, 1.1, float("nan")):
        refused("expected a probability between 0 and 1", bernoulli, p)
    for k in (-1, 2.5, float("nan")):
        refused("expected a whole number of members, 0 or more", stratified, k)
    refused("give a list of texts", reward_goal, bernoulli(0.5), "lh")
    refused(r"cannot draw 3 of a group of 2", stratified(3), Place(KEY, 0, 2))
    refused("-1 means no condition", fixed, -1)
    refused("no two alike", reward_goal, fixed(0), ())
    refused("no two alike", reward_goal, fixed(0), ("a", "a"))
    for template in ("goal", "{} or {}"):
        refused("exactly one {}", reward_goal, fixed(0), ("a",), template)
    refused("literals for 0 to 1 only", reward_goal(fixed(2)), Task("t"), OPENING, Place(KEY, 0, 1))
    refused("condition 2 cannot be shown: there are literals for 0 to 1 only", goal_messages(), Task("t"), OPENING, 2)
    refused("task 't' has condition 0, and nothing", unconditioned, Task("t"), OPENING, 0)
    refused("literals for 0 to 1 only", reward_goal(lambda place: -1), Task("t"), OPENING, Place(KEY, 0, 1))
    silent = Opening([{"role": "system", "content": "Be good."}])
    refused(
        r"task 't': the opening has roles \['system'\] and no user message",
        reward_goal(fixed(0)),
        Task("t"),
        silent,
        Place(KEY, 0, 1),
    )
    refused("content of type list", append_to_first_user_message, [{"role": "user", "content": []}], "x")
