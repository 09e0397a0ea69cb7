"""The rollout loop: what it writes down, where it stops, and that timing changes nothing."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.facts import Opening, Task
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.driver import StreamTask, rollout
from rlagents.rollouts.local_pool import LocalPool
from rlagents.rollouts.members import Limits
from rlagents.rollouts.pool import ProcessPool
from rlagents.sampling.keys import StreamKey
from rlagents.sampling.turns import StopReason
from rlagents.types import Kind
from tests.effort import draws
from tests.rollouts.fakes import FakeSampler, SlowPool
from tests.rollouts.tiny import CHATML, tokenizer
from tests.rollouts.worlds import CountingEnvironment

CHAT = Chat(tokenizer(), CHATML)
LIMITS = Limits(max_turns=8, max_turn_tokens=64, max_response_tokens=400, max_prompt_tokens=200)
ENVIRONMENT = CountingEnvironment()


def tasks(*payloads, first=10):
    return [StreamTask(first + n, Task(f"task {first + n}", payload)) for n, payload in enumerate(payloads)]


def play(*turns):
    """A script in which every member says these turns."""
    return lambda stream, member, turn: turns[turn]


def run(script, stream_tasks=None, *, limits=LIMITS, pool=None, sampler=None, group_size=2, **keywords):
    sampler = sampler or FakeSampler(CHAT, script)
    result = rollout(
        tasks({}) if stream_tasks is None else stream_tasks,
        sampler=sampler,
        chat=CHAT,
        pool=pool or LocalPool(ENVIRONMENT),
        group_size=group_size,
        limits=limits,
        run=1,
        step=2,
        **keywords,
    )
    assert not sampler.handles, "a group was left open"
    return result


def text_of(trajectory, *kinds):
    return CHAT.decode([token for token, kind in zip(trajectory.token_ids, trajectory.kinds) if kind in kinds])


def test_a_conversation_is_written_down_turn_by_turn():
    sampler = FakeSampler(CHAT, lambda stream, member, turn: ["add 2", f"add {member}", "done"][turn])
    result = run(None, sampler=sampler)
    for member, trajectory in enumerate(result.groups[0]):
        assert (trajectory.task_id, trajectory.stream, trajectory.member) == ("task 10", 10, member)
        roles = [message["role"] for message in trajectory.messages]
        assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
        assert trajectory.messages[4]["content"] == f"total {2 + member}"
        assert [turn.score for turn in trajectory.turn_facts] == trajectory.turn_scores == [0.5, 0.5, 1.0]
        assert trajectory.outcome.reward == 2 + member
        assert trajectory.outcome.named == {"steps": 3.0}
        assert not trajectory.truncated
        assert trajectory.valid
        assert trajectory.condition == -1
        # The tokens are the sampler's, the log-probs lie on its turns alone, and the text is the conversation's.
        held = sampler.finished[member]
        tail = len(held.ids) - len(trajectory.token_ids)
        assert held.ids[tail:] == list(trajectory.token_ids)
        assert [(p != 0.0) for p in trajectory.log_probs] == [kind == Kind.MODEL for kind in trajectory.kinds]
        whole = CHAT.decode([*trajectory.prompt_ids, *trajectory.token_ids])
        assert whole + "\n" == CHAT.render(trajectory.messages, None, False)
        assert text_of(trajectory, Kind.MODEL) == f"add 2<|im_end|>add {member}<|im_end|>done<|im_end|>"
    assert result.counts["model_turns"] == 6
    assert result.counts["trajectories"] == 2


def test_a_summary_is_json():
    trajectory = run(play("add 2", "done")).groups[0][1]
    summary = json.loads(json.dumps(trajectory.summary()))
    assert summary["reward"] == 2.0
    assert summary["tokens"]["model"] + summary["tokens"]["tool"] == len(trajectory.token_ids)
    assert summary["stop_reasons"] == ["stop_token", "stop_token"]
    assert summary["messages"][1] == {"role": "assistant", "content": "add 2"}


# A finished answer taken for a truncated one, because its last token is not *the* end token.
@pytest.mark.parametrize("ending", ["<|im_end|>", "<|endoftext|>", ";"])
def test_stop_reasons_come_from_the_sampler(ending):
    trajectory = run(play(("add 2", ending), ("done", ending))).groups[0][0]
    naive_truncated = trajectory.token_ids[-1] != tokenizer().eos_token_id
    assert naive_truncated == (ending != "<|endoftext|>")
    assert not trajectory.truncated
    expected = StopReason.STOP_STRING if ending == ";" else StopReason.STOP_TOKEN
    assert list(trajectory.stop_reasons) == [expected] * 2
    assert trajectory.messages[1]["content"] == "add 2"  # up to the stop


# The length of a prompt checked before it is what is sent.
def test_prompts_are_measured_as_they_are_sent_and_skipped_whole():
    def longer_for_the_second(task, opening, member):
        return [{**opening.messages[0], "content": opening.messages[0]["content"] + " x" * (50 * member)}], member

    fits = len(CHAT.encode(CHAT.open(ENVIRONMENT.opening(Task("t")).messages)))
    limits = dataclasses.replace(LIMITS, max_prompt_tokens=fits + 10)
    stream = tasks({}, {"question": "y " * 100}, {})
    result = run(play("done"), stream, limits=limits)
    assert [group[0].stream for group in result.groups] == [10, 12]
    (skipped,) = result.skipped
    assert (skipped.stream, skipped.task_id) == (11, "task 11")
    assert f"max_prompt_tokens is {fits + 10}" in skipped.reason
    assert result.counts["prompts_too_long"] == 1
    # The opening fits, what is sent to the second member does not.
    result = run(play("done"), stream[:1], limits=limits, member_messages=longer_for_the_second)
    assert not result.groups
    assert len(result.skipped) == 1


# Tool output that holds the answer must not count as the model's words.
def test_the_environment_scores_what_the_model_wrote():
    def answer_in_words(transcript):
        return sum("total 42" in m["content"] for m in transcript.messages if m["role"] == "assistant")

    class Judging(CountingEnvironment):
        def score(self, task, transcripts):
            return [
                dataclasses.replace(outcome, reward=float(answer_in_words(transcript)))
                for outcome, transcript in zip(super().score(task, transcripts), transcripts)
            ]

    trajectory = run(play("add 42", "done"), pool=LocalPool(Judging())).groups[0][0]
    naive = CHAT.decode(trajectory.token_ids)  # all tokens of the response
    assert "total 42" in naive
    assert trajectory.outcome.reward == 0.0
    assert "total 42" not in text_of(trajectory, Kind.MODEL)
    assert "total 42" in text_of(trajectory, Kind.TOOL)


# Budgets: each is passed on turn by turn, and what does not fit is dropped whole.
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


def test_groups_open_in_stream_order_with_their_own_keys_and_come_back_in_it():
    sampler = FakeSampler(CHAT, lambda stream, member, turn: "done" if turn >= stream % 3 else "add 1", seed=5)
    stream = tasks(*[{}] * 7)
    result = run(None, stream, sampler=sampler, pool=SlowPool(ENVIRONMENT, 5))
    assert [keys for keys, _ in sampler.opened] == [StreamKey(0, 1, 2, task.stream) for task in stream]
    assert [group[0].stream for group in result.groups] == [task.stream for task in stream]


@given(seed=st.integers(0, 10_000), lengths=st.lists(st.integers(0, 5), min_size=6, max_size=6))
@settings(max_examples=draws(25), deadline=None)
def test_timing_changes_nothing(seed, lengths):
    def script(stream, member, turn):
        return f"add {stream + member + turn}" if turn < lengths[(stream + 2 * member) % 6] else "done"

    stream = tasks(*[{}] * 4)
    expected = run(script, stream)
    sampler = FakeSampler(CHAT, script, num_groups=3, num_rows=6, seed=seed)
    found = run(None, stream, sampler=sampler, pool=SlowPool(ENVIRONMENT, seed + 1))
    for ours, theirs in zip(expected.groups, found.groups, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            # Outcomes hold the same numbers; nothing here names a row, a slot or a moment.
            assert one == other
    assert expected.counts == found.counts


def test_conditions_and_their_messages_belong_to_the_members():
    def with_token(task, opening, member):
        return [{**opening.messages[0], "content": f"{opening.messages[0]['content']} <{member}>"}], member + 5

    sampler = FakeSampler(CHAT, play("done"))
    group = run(None, sampler=sampler, member_messages=with_token).groups[0]
    assert [trajectory.condition for trajectory in group] == [5, 6]
    assert [trajectory.messages[0]["content"] for trajectory in group] == ["Count. <0>", "Count. <1>"]
    assert [CHAT.decode(prompt).count("<1>") for prompt in sampler.opened[0][1]] == [0, 1]


def test_forced_tokens_begin_every_turn_and_belong_to_its_text():
    forced = CHAT.encode("add ")
    sampler = FakeSampler(CHAT, lambda stream, member, turn: ["2", "3"][turn])
    limits = dataclasses.replace(LIMITS, max_turns=2)
    trajectory = run(None, sampler=sampler, limits=limits, forced_prefix=forced).groups[0][0]
    assert [m["content"] for m in trajectory.messages if m["role"] == "assistant"] == ["add 2", "add 3"]
    assert trajectory.messages[2]["content"] == "total 2"
    forced_at = [i for i, kind in enumerate(trajectory.kinds) if kind == Kind.FORCED]
    assert [trajectory.turns[i] for i in forced_at] == [0] * len(forced) + [1] * len(forced)
    assert text_of(trajectory, Kind.FORCED) == "add add "
    assert all(trajectory.log_probs[i] == 0.0 for i in forced_at)
    held = sampler.finished[0].ids
    assert held[len(held) - len(trajectory.token_ids) :] == list(trajectory.token_ids)
    with pytest.raises(ValueError, match="no room after the forced prefix"):
        run(play("2"), limits=dataclasses.replace(LIMITS, max_response_tokens=len(forced)), forced_prefix=forced)


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


def test_tool_schemas_of_an_opening_reach_the_template():
    class WithTools(CountingEnvironment):
        def opening(self, task):
            return Opening(super().opening(task).messages, [{"name": "count_things"}])

    with pytest.raises(ValueError, match="leaves out the tool schemas"):
        run(play("done"), pool=LocalPool(WithTools()))


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


def test_callers_mistakes_are_named():
    with pytest.raises(ValueError, match="max_turns is 0"):
        dataclasses.replace(LIMITS, max_turns=0)
    with pytest.raises(RuntimeError, match="no room for a group of 9"):
        run(play("done"), group_size=9)
    with pytest.raises(ValueError, match="same stream index"):
        run(play("done"), tasks({}) * 2)
    assert run(play("done"), []).groups == []
