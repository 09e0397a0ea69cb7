"""The rollout loop: what it writes down, in which order, and that timing changes nothing."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.facts import Opening, Task
from rlagents.rollouts import conditions
from rlagents.rollouts.local_pool import LocalPool
from rlagents.sampling.keys import StreamKey
from rlagents.sampling.turns import StopReason
from rlagents.types import Kind
from tests.effort import draws
from tests.rollouts.fakes import FakeSampler, SlowPool
from tests.rollouts.playing import CHAT, ENVIRONMENT, LIMITS, play, run, tasks, text_of
from tests.rollouts.tiny import tokenizer
from tests.rollouts.worlds import CountingEnvironment


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
    assert summary["weight_versions"] == [FakeSampler.version] * 2
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
    assert list(trajectory.weight_versions) == [FakeSampler.version] * 2
    assert trajectory.token_versions().tolist() == [FakeSampler.version] * trajectory.kinds.count(Kind.MODEL)
    assert trajectory.messages[1]["content"] == "add 2"  # up to the stop


# The length of a prompt checked before it is what is sent.
def test_prompts_are_measured_as_they_are_sent_and_skipped_whole():
    def longer_for_the_second(task, opening, place):
        return conditions.append_to_first_user_message(opening.messages, " x" * (50 * place.member)), place.member

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
    def with_token(task, opening, place):
        return conditions.append_to_first_user_message(opening.messages, f" <{place.member}>"), place.member + 5

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


def test_tool_schemas_of_an_opening_reach_the_template():
    class WithTools(CountingEnvironment):
        def opening(self, task):
            return Opening(super().opening(task).messages, [{"name": "count_things"}])

    with pytest.raises(ValueError, match="leaves out the tool schemas"):
        run(play("done"), pool=LocalPool(WithTools()))


def test_callers_mistakes_are_named():
    with pytest.raises(ValueError, match="max_turns is 0"):
        dataclasses.replace(LIMITS, max_turns=0)
    with pytest.raises(RuntimeError, match="no room for a group of 9"):
        run(play("done"), group_size=9)
    with pytest.raises(ValueError, match="same stream index"):
        run(play("done"), tasks({}) * 2)
    assert run(play("done"), []).groups == []
