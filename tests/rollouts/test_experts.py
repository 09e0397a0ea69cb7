"""Expert texts through the real environment: what is to be imitated, and only that, is MODEL."""

import pytest

from rlagents.facts import Task
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.experts import expert_trajectory
from rlagents.rollouts.templates import LLAMA31
from rlagents.types import Kind
from tests.rollouts.tiny import CHATML, tokenizer
from tests.rollouts.worlds import CountingEnvironment

TASK = Task("t")


@pytest.mark.parametrize(("template", "stop"), [(CHATML, "<|im_end|>"), (LLAMA31, "<|eot_id|>")])
def test_an_expert_s_texts_and_stop_tokens_are_model_tokens(template, stop):
    chat = Chat(tokenizer(), template)
    trajectory = expert_trajectory(CountingEnvironment(), chat, TASK, ["add 2", "add 3", "done"], stream=4)
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
    for texts, says in (([], "says nothing"), (["add 1"], "not over"), (["done", "add 1"], "after turn 1 .* is over")):
        with pytest.raises(ValueError, match=says):
            expert_trajectory(CountingEnvironment(), chat, TASK, texts, stream=0)
    plain = Chat(tokenizer(), CHATML.replace("<|im_end|>\n", "\nEND\n"))
    with pytest.raises(ValueError, match="no stop token"):
        expert_trajectory(CountingEnvironment(), plain, TASK, ["done"], stream=0)
