"""Groups worth collecting: what filters would leave, in stream order, whoever finishes first."""

import dataclasses
import functools
import math
from collections import Counter
from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.data.streams import PromptStream, StreamExhausted
from rlagents.facts import Outcome, Task, TurnFacts
from rlagents.methods import chain, clipped_surrogate, group_advantage, method, predicates, token_mean
from rlagents.methods.filters import drop
from rlagents.rollouts.collate import collate
from rlagents.rollouts.driver import Rollout
from rlagents.rollouts.dynamic_sampling import draw_size, sample_informative
from rlagents.rollouts.informative import anything, informative
from rlagents.rollouts.local_pool import LocalPool
from rlagents.types import Kind, LogProbs
from tests.effort import draws
from tests.rollouts.fakes import FakeSampler, SlowPool
from tests.rollouts.playing import CHAT, ENVIRONMENT, run
from tests.rollouts.test_collate import trajectory

MIXED, UNIFORM, LOST, TOO_LONG, NO_OPENING = "mixed", "uniform", "lost", "too long", "no opening"
PAYLOADS = {LOST: {"bad_score": True}, TOO_LONG: {"question": "y " * 300}, NO_OPENING: {"bad_opening": True}}
BUCKETS = {"prefix_buckets": (64,), "member_buckets": (96,), "turn_buckets": (8,)}
NOT_UNIFORM = informative(predicates.uniform_groups)

fates = st.lists(
    st.sampled_from([MIXED, MIXED, UNIFORM, UNIFORM, LOST, TOO_LONG, NO_OPENING]), min_size=30, max_size=30
)


def stream_of(fates, position=0):
    return PromptStream(
        lambda index: Task(f"task {index}", PAYLOADS.get(fates[index], {})), length=len(fates), position=position
    )


def sample(
    fates, stream, *, prompts_per_step, over_sample=1.0, seed=None, informative=NOT_UNIFORM, stop_early=False, **options
):
    """Groups of two; the rewards of a MIXED task's members differ. With a seed, all happens late and in any order."""

    def script(index, member, turn):
        if turn == 0:
            return f"add {1 + member * (fates[index] == MIXED)}"
        return "add 0" if turn < (index + 2 * member) % 4 else "done"

    def roll_out(tasks, last_needed):
        assert stop_early or last_needed is None
        sampler = FakeSampler(CHAT, script, num_groups=3, num_rows=6, seed=seed, stops=stop_early)
        pool = LocalPool(ENVIRONMENT) if seed is None else SlowPool(ENVIRONMENT, seed)
        result = run(None, tasks, sampler=sampler, pool=pool, last_needed=last_needed)
        assert not pool._episodes._living
        return result

    return sample_informative(
        stream.take,
        roll_out,
        prompts_per_step=prompts_per_step,
        informative=informative,
        collate=partial(collate, pad_prompts_to=8, **BUCKETS),
        over_sample=over_sample,
        stop_early=stop_early,
        **options,
    )


def streams(sampled):
    return [group[0].stream for group in sampled.groups]


def judge(fates, begin, wanted, size, max_draws):
    """By the plain words: ``(kept stream indices, draws, tasks up to the last kept, or all where some were missing)``.

    The earliest informative groups, then the earliest others.
    """
    number = 0
    for number in range(1, max_draws + 1):
        drawn = range(begin, begin + number * size)
        if sum(fates[index] == MIXED for index in drawn) >= wanted:
            break
    good = [index for index in drawn if fates[index] == MIXED][:wanted]
    others = [index for index in drawn if fates[index] in (UNIFORM, LOST)][: wanted - len(good)]
    return sorted(good + others), number, (good[-1] + 1 - begin if len(good) == wanted else len(drawn))


@given(fates=fates, begin=st.integers(0, 3), wanted=st.integers(1, 4), factor=st.sampled_from([1.0, 1.2, 1.5, 2.0]),
       max_draws=st.integers(1, 3), seed=st.integers(0, 10_000), stop_early=st.booleans())  # fmt: skip
@settings(max_examples=draws(40), deadline=None)
def test_the_first_informative_groups_of_the_stream_are_kept_whoever_finishes_first(
    fates, begin, wanted, factor, max_draws, seed, stop_early
):
    size = math.ceil(factor * wanted - 1e-9)
    kept, num_draws, needed = judge(fates, begin, wanted, size, max_draws)
    options = {"prompts_per_step": wanted, "over_sample": factor, "max_draws": max_draws, "stop_early": stop_early}
    stream, other = stream_of(fates, begin), stream_of(fates, begin)
    if not kept:
        with pytest.raises(ValueError, match=f"all {num_draws * size} tasks were skipped; the first: "):
            sample(fates, stream, **options)
        return
    at_once, late = sample(fates, stream, **options), sample(fates, other, seed=seed, **options)
    assert streams(at_once) == kept
    assert (at_once.groups, at_once.skipped, at_once.counts) == (late.groups, late.skipped, late.counts)
    assert stream.position == other.position == begin + num_draws * size
    drawn = fates[begin : begin + needed] if stop_early else fates[begin : stream.position]
    assert [skip.stream - begin for skip in at_once.skipped] == [
        index for index, fate in enumerate(drawn) if fate in (TOO_LONG, NO_OPENING)
    ]
    counted = {name: count for name, count in at_once.counts.items() if name.startswith(("groups_", "uninf", "draws"))}
    found = {
        "draws": num_draws,
        "groups_sampled": sum(fate in (MIXED, UNIFORM, LOST) for fate in drawn),
        "groups_kept": len(kept),
        "uninformative/uniform_groups": drawn.count(UNIFORM),
        "uninformative/no_valid_member": drawn.count(LOST),
        "groups_stopped": num_draws * size - len(drawn),
    }
    assert counted == {name: count for name, count in found.items() if count}
    assert at_once.counts["trajectories"] == 2 * found["groups_sampled"]


@given(fates=fates, stop=st.integers(0, 3), seed=st.integers(0, 10_000))
@settings(max_examples=draws(15), deadline=None)
def test_a_run_that_goes_on_from_the_stream_s_position_is_the_run_never_interrupted(fates, stop, seed):
    # The first group of every draw can be sampled: this is about where the next step begins.
    fates = [MIXED if index % 3 == 0 else fate for index, fate in enumerate(fates)]
    options = {"prompts_per_step": 2, "over_sample": 1.5, "max_draws": 2, "stop_early": True}

    def steps(number, position, **more):
        stream = stream_of(fates, position)
        return [(sample(fates, stream, **options, **more).groups, stream.position) for _ in range(number)]

    whole = steps(4, 0)
    position = whole[stop - 1][1] if stop else 0
    assert steps(4 - stop, position, seed=seed) == whole[stop:]


class Silent(LocalPool):
    """Never answers ``silent`` requests about tasks beyond the first two; steps: only of a task's second episode."""

    def __init__(self, silent):
        super().__init__(ENVIRONMENT)
        self.silent, self.tasks = silent, {}
        self.abandoned, self.unanswered, self.second = set(), set(), set()

    def ask(self, name, task, ticket):
        if name == self.silent and task.id not in ("task 0", "task 1"):
            self.unanswered.add(ticket)
        return ticket

    def opening(self, task):
        return self.ask("opening", task, super().opening(task))

    def start(self, task):
        episode = super().start(task)
        self.second |= {episode} if task in self.tasks.values() else set()
        self.tasks[episode] = task
        return episode

    def step(self, episode, text):
        return self.ask("step" if episode in self.second else "", self.tasks[episode], super().step(episode, text))

    def finish(self, episode):
        return self.ask("finish", self.tasks[episode], super().finish(episode))

    def score(self, task, transcripts):
        return self.ask("score", task, super().score(task, transcripts))

    def abandon(self, episode):
        assert episode in self._episodes._living, "an episode ends once"
        self.abandoned.add(episode)
        super().abandon(episode)

    def poll(self, timeout_seconds=0.0):
        return [finished for finished in super().poll() if finished.ticket not in self.unanswered]


@pytest.mark.parametrize("silent", ["turn", "opening", "step", "finish", "score"])
def test_a_group_that_matters_no_more_holds_nobody_up(silent):
    """Two groups are enough. Of the third, one member is over and the other waits for what never comes."""

    class Sampler(FakeSampler):
        def step(self):
            late = {number for number, row in enumerate(self.rows) if row and row.stream > 1 and row.member == 1}
            return [turn for turn in super().step() if not (silent == "turn" and turn.row in late)]

    def script(stream, member, turn):
        return "done" if turn == 3 or (stream > 1 and turn == member) else "add 1"

    pool, samplers = Silent(silent), []

    def roll_out(tasks, last_needed):
        samplers.append(Sampler(CHAT, script, num_groups=3, num_rows=6, stops=True))
        return run(None, tasks, sampler=samplers[-1], pool=pool, last_needed=last_needed)

    sampled = sample_informative(
        stream_of([MIXED] * 4).take,
        roll_out,
        prompts_per_step=2,
        over_sample=2.0,
        collate=partial(collate, pad_prompts_to=4, **BUCKETS),
        informative=anything,
    )
    assert streams(sampled) == [0, 1]
    assert sampled.counts["groups_stopped"] == 2
    assert samplers[0].rows == [None] * 6
    assert not pool._episodes._living
    assert bool(pool.abandoned) == (silent in ("turn", "step"))


def test_the_last_needed_moves_to_the_front():
    """The last needed moves to the front as groups before it turn out to be worth it; nobody is judged twice."""
    ended = {stream: [trajectory(stream, member) for member in range(2)] for stream in (1, 2, 3, 4)}

    def judge(groups, _):
        seen.append([group[0].stream for group in groups])
        return ["dull" if group[0].stream == 2 else None for group in groups]

    seen, answers = [], []

    def roll_out(tasks, last_needed):
        for streams in ([3], [2, 3], [2, 3, 4], [1, 2, 3, 4]):
            answers.append(last_needed({stream: ended[stream] for stream in streams}))
        return Rollout([ended[1], ended[2], ended[3]], [], Counter())

    stream = stream_of([MIXED] * 6)
    sampled = sample_informative(
        stream.take, roll_out, prompts_per_step=2, over_sample=3.0, collate=None, informative=judge
    )
    assert answers == [None, None, 4, 3]
    assert [stream for groups in seen for stream in groups] == [2, 3, 4, 1]  # each once
    assert streams(sampled) == [1, 3]


def test_anything_is_the_rollout_as_it_comes():
    fates = [UNIFORM, LOST, TOO_LONG, MIXED, UNIFORM]
    stream = stream_of(fates)

    def never(groups):
        raise AssertionError("nothing has to be collated to take everything")

    sampled = sample(fates, stream, prompts_per_step=4, informative=lambda groups, _: anything(groups, never))
    assert streams(sampled) == [0, 1, 3]
    assert stream.position == 4
    plain = {"draws": 1, "groups_sampled": 3, "groups_kept": 3}
    assert {name: sampled.counts[name] for name in plain} == plain
    assert not any("uninformative" in name for name in sampled.counts)


def test_a_draw_that_was_skipped_whole_is_followed_by_another():
    fates = [TOO_LONG, NO_OPENING, UNIFORM, MIXED]
    sampled = sample(fates, stream_of(fates), prompts_per_step=2, max_draws=2)
    assert streams(sampled) == [2, 3]
    assert sampled.counts["draws"] == 2
    assert len(sampled.skipped) == 2


def test_the_batch_has_its_shape_whatever_was_informative():
    for fates in ([MIXED] * 8, [UNIFORM] * 8, [UNIFORM, MIXED] * 4, [LOST] * 8, [TOO_LONG, MIXED] * 4):
        sampled = sample(fates, stream_of(fates), prompts_per_step=2, over_sample=2.0, max_draws=2)
        assert len(sampled.groups) == 2
        batch = collate(sampled.groups, pad_prompts_to=2, **BUCKETS)
        assert batch.sequences.tokens.shape == (2, 2, 96)


def test_the_size_of_a_draw_is_exact():
    assert [draw_size(10, factor) for factor in (1.0, 1.01, 1.1, 1.15, 2.0, 3)] == [10, 11, 11, 12, 20, 30]
    assert (draw_size(3, 1.5), draw_size(50, 1.1)) == (5, 55)


def test_callers_mistakes_are_named():
    fates = [UNIFORM] * 3
    for options in ({"over_sample": 0.9}, {"max_draws": 0}, {"over_sample": float("nan")}):
        with pytest.raises(ValueError, match="give 1 or more of each"):
            sample_informative(None, None, prompts_per_step=1, collate=None, **options)
    with pytest.raises(StreamExhausted):
        sample(fates, stream_of(fates), prompts_per_step=2, max_draws=2)
    with pytest.raises(ValueError, match="without a predicate"):
        informative()

    def by_group(credit, rewards, masks):
        return credit.valid.all(-1)

    for wrong, found in (
        (by_group, r"bool of shape \(8,\)"),
        (lambda c, r, m: c.rewards, r"float32 of shape \(8, 2\)"),
    ):
        with pytest.raises(ValueError, match=f"answers with {found}; expected a bool for each member"):
            sample(fates, stream_of(fates), prompts_per_step=1, informative=informative(wrong))


PREDICATES = [
    predicates.failed_tools,
    predicates.void_turns,
    predicates.truncated,
    predicates.uniform_groups,
    predicates.pass_rate_outside(0.1, 0.9),
    predicates.few_finished(2),
]


@st.composite
def batches_of_groups(draw):
    """Up to four groups of three: rewards, tool calls, void turns, truncation and loss as it comes."""

    def member(stream, number):
        turns = draw(st.integers(0, 3))
        facts = []
        for _ in range(turns):
            calls = draw(st.integers(0, 2))
            facts.append(TurnFacts(0.0, calls, draw(st.integers(0, calls)), draw(st.integers(0, 5)) == 0))
        lost = draw(st.integers(0, 4)) == 0
        outcome = Outcome(draw(st.sampled_from([0.0, 1.0, 0.1, 0.9])))
        return trajectory(
            stream,
            number,
            segments=[(Kind.MODEL, 2)] * turns,
            turn_facts=facts,
            truncated=draw(st.integers(0, 3)) == 0,
            outcome=None if lost else outcome,
            lost="worker died" if lost else None,
        )

    return [[member(stream, number) for number in range(3)] for stream in range(draw(st.integers(1, 4)))]


def learner_s_verdict(batch, filters):
    """Whether a method that begins by dropping ``filters`` has anyone left in a row."""
    nothing = np.zeros(batch.rollout.shape, np.float32)
    credit = credit_of(filters)(LogProbs(nothing), batch.rewards, batch.masks)
    return np.asarray(credit.valid).any(-1)


@functools.cache
def judge_of(filters):
    return informative(*filters)


@functools.cache
def credit_of(filters):
    begun = method(
        chain(*map(drop, filters), group_advantage(ddof=0, epsilon=1e-6), clipped_surrogate(0.2, 0.2)), token_mean()
    )
    return jax.jit(lambda logprobs, rewards, masks: begun.credit(begun.init(), logprobs, rewards, masks)[0])


fixed_shape = partial(collate, prefix_buckets=(4,), member_buckets=(16,), turn_buckets=(3,), pad_prompts_to=4)


@pytest.mark.parametrize("predicate", PREDICATES, ids=lambda predicate: predicate.__name__)
@given(groups=batches_of_groups())
@settings(max_examples=draws(12), deadline=None)
def test_informative_groups_are_those_that_the_filter_leaves(predicate, groups):
    left = learner_s_verdict(fixed_shape(groups), (predicate,))[: len(groups)]
    names = judge_of((predicate,))(groups, fixed_shape)
    assert [name is None for name in names] == left.tolist()
    lost = [not any(member.valid for member in group) for group in groups]
    blamed = ["no_valid_member" if all_lost else predicate.__name__ for all_lost in lost]
    assert names == [None if some else name for some, name in zip(left, blamed)]


@pytest.mark.parametrize(
    "both",
    [
        (predicates.void_turns, predicates.failed_tools),
        (predicates.truncated, predicates.uniform_groups),  # the second sees whom the first has left
        (predicates.failed_tools, predicates.few_finished(2)),
    ],
    ids=lambda both: both[1].__name__,
)
@given(groups=batches_of_groups())
@settings(max_examples=draws(20), deadline=None)
def test_several_predicates_are_a_chain_of_filters(both, groups):
    left = learner_s_verdict(fixed_shape(groups), both)
    assert [name is None for name in judge_of(both)(groups, fixed_shape)] == left[: len(groups)].tolist()


def test_two_predicates_may_empty_a_group_together():
    void = trajectory(0, 0, turn_facts=[TurnFacts(void=True)])
    failed = trajectory(0, 1, turn_facts=[TurnFacts(tool_calls=1)])
    groups, one, other = [[void, failed]], predicates.void_turns, predicates.failed_tools
    assert informative(one)(groups, fixed_shape) == informative(other)(groups, fixed_shape) == [None]
    assert informative(one, other)(groups, fixed_shape) == ["failed_tools"]
    assert informative(other, one)(groups, fixed_shape) == ["void_turns"]
    good = [[void, dataclasses.replace(failed, turn_facts=[TurnFacts(tool_calls=1, tool_successes=1)])]]
    assert informative(one, other)(good, fixed_shape) == [None]
    assert informative(one)([], fixed_shape) == anything([], fixed_shape) == []
