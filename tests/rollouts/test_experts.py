"""Expert texts through the real environment: what is to be imitated, and only that, is MODEL."""

import pytest

from rlagents.facts import Task
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.conditions import HIGH, LOW, goal_messages
from rlagents.rollouts.experts import Demonstration, complete, expert_trajectory, first_then, hasty
from rlagents.rollouts.templates import LLAMA31
from rlagents.types import Kind
from tests.rollouts.tiny import CHATML, tokenizer
from tests.rollouts.worlds import CountingEnvironment

TASK = Task("t")


@pytest.mark.parametrize(("template", "stop"), [(CHATML, "<|im_end|>"), (LLAMA31, "<|eot_id|>")])
def test_an_expert_s_texts_and_stop_tokens_are_model_tokens(template, stop):
    chat = Chat(tokenizer(), template)
    demonstration = complete(lambda task: [["add 2", "add 3", "done"]])(TASK, 0)
    trajectory = expert_trajectory(CountingEnvironment(), chat, TASK, demonstration, stream=4)
    model = [token for token, kind in zip(trajectory.token_ids, trajectory.kinds) if kind == Kind.MODEL]
    assert chat.decode(model) == f"add 2{stop}add 3{stop}done{stop}"
    assert [message["content"] for message in trajectory.messages if message["role"] == "tool"] == [
        "total 2",
        "total 5",
    ]
    whole = chat.decode([*trajectory.prompt_ids, *trajectory.token_ids])
    assert chat.render(trajectory.messages, None, False).startswith(whole)
    assert set(trajectory.log_probs) == {0.0}
    assert trajectory.outcome.reward == 5.0
    assert (trajectory.stream, trajectory.num_turns, trajectory.truncated) == (4, 3, False)
    assert [turn.tool_calls for turn in trajectory.turn_facts] == [1, 1, 0]


def test_an_expert_who_does_not_fit_the_task_is_an_error():
    chat = Chat(tokenizer(), CHATML)
    for texts, ends, says in (
        ([], True, "says nothing"),
        (["add 1"], True, "not over"),
        (["done", "add 1"], True, "after turn 1 .* is over"),
        (["add 1", "done"], False, "after turn 2 .* is over"),
    ):
        with pytest.raises(ValueError, match=says):
            expert_trajectory(CountingEnvironment(), chat, TASK, Demonstration(texts, ends), stream=0)
    plain = Chat(tokenizer(), CHATML.replace("<|im_end|>\n", "\nEND\n"))
    with pytest.raises(ValueError, match="no stop token"):
        expert_trajectory(CountingEnvironment(), plain, TASK, Demonstration(["done"]), stream=0)


def test_a_demonstration_that_breaks_off_is_truncated():
    chat = Chat(tokenizer(), CHATML)
    trajectory = expert_trajectory(CountingEnvironment(), chat, TASK, Demonstration(["add 1"], ends=False), stream=0)
    assert (trajectory.truncated, trajectory.num_turns) == (True, 1)
    # What the environment says after the last text is kept as a message, and is nothing to be imitated.
    assert trajectory.messages[-1]["content"] == "total 1"
    assert chat.decode(trajectory.token_ids) == "add 1<|im_end|>"


TURNS = [["a", "done"], ["b", "c", "done"], ["d", "e", "f", "done"]]


def said(turns, share, name="t"):
    return hasty(lambda task: turns, share)(Task(name), 0)


def all_of(turns):
    return complete(lambda task: turns)(TASK, 0)


def test_a_hasty_expert_leaves_out_the_last_of_several_calls_and_breaks_off():
    assert said(TURNS, 1.0) == Demonstration(["a", "done", "b", "done"], ends=False)
    assert said(TURNS, 0.0) == all_of(TURNS)
    # In the last user turn the episode is over.
    assert said(TURNS[2:], 1.0) == Demonstration(["d", "e", "done"], ends=True)
    # A turn of one call is never cut: nothing would be left of it.
    assert said(TURNS[:1], 1.0) == all_of(TURNS[:1])


def test_haste_comes_as_often_as_it_says_and_always_in_the_same_tasks():
    demonstrations = [said(TURNS, 0.3, f"task-{number}") for number in range(2000)]
    assert demonstrations == [said(TURNS, 0.3, f"task-{number}") for number in range(2000)]
    whole = sum(demonstration == all_of(TURNS) for demonstration in demonstrations) / 2000
    first_turn = sum(len(demonstration.texts) == 4 for demonstration in demonstrations) / 2000
    # Five standard errors.
    assert abs(whole - 0.49) < 0.056
    assert abs(first_turn - 0.3) < 0.052


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_no_probability_is_refused_at_once(share):
    with pytest.raises(ValueError, match="probability"):
        hasty(lambda task: TURNS, share)


def test_one_lesson_follows_the_other():
    whole, cut = complete(lambda task: TURNS), hasty(lambda task: TURNS, 1.0)
    shown = first_then(whole, cut, first_steps=3)
    assert [shown(TASK, step) for step in range(5)] == [whole(TASK, 0)] * 3 + [cut(TASK, 0)] * 2
    assert first_then(whole, cut, first_steps=0)(TASK, 0) == cut(TASK, 0)
    with pytest.raises(ValueError, match="first_steps is -1"):
        first_then(whole, cut, first_steps=-1)


@pytest.mark.parametrize(("condition", "literal"), [(LOW, "<|low_reward|>"), (HIGH, "<|high_reward|>")])
def test_a_demonstration_is_shown_with_its_condition_and_scored_without(condition, literal):
    chat, environment = Chat(tokenizer(), CHATML), CountingEnvironment()
    said = Demonstration(["add 2", "done"], condition=condition)
    trajectory = expert_trajectory(environment, chat, TASK, said, stream=0, shown=goal_messages())
    plain = expert_trajectory(environment, chat, TASK, said._replace(condition=-1), stream=0)
    assert (trajectory.condition, plain.condition) == (condition, -1)
    goal = f"\n[Reward Goal: {literal}]"
    whole, without = (chat.decode([*t.prompt_ids, *t.token_ids]) for t in (trajectory, plain))
    assert whole.count(goal) == 1
    assert whole.replace(goal, "") == without
    assert trajectory.outcome == plain.outcome
    # None of the goal's tokens is learned: it belongs to the prompt.
    assert list(trajectory.token_ids) == list(plain.token_ids)


def test_a_condition_that_nothing_shows_is_refused():
    with pytest.raises(ValueError, match="task 't' has condition 1, and nothing says how it is shown"):
        expert_trajectory(
            CountingEnvironment(), Chat(tokenizer(), CHATML), TASK, Demonstration(["done"], condition=1), stream=0
        )
