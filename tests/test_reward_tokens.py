"""Reward goals as special tokens: in a whole run, and in the BFCL experiment with SmolLM2's weights and tokenizer."""

import functools

import jax
import numpy as np
import pytest

from experiments.rc_grpo import bfcl
from rlagents.checkpoints import params_of
from rlagents.facts import Opening, Task
from rlagents.first_weights import placed_params
from rlagents.models.vocabulary import with_special_tokens
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.conditions import GOAL_LITERALS, bernoulli, goal_messages, reward_goal
from rlagents.rollouts.conversation import Conversation
from tests import smallest_run

OPENING = Opening([{"role": "user", "content": "List the files."}])


@pytest.fixture(autouse=True)
def _read_once(monkeypatch):
    monkeypatch.setattr(bfcl, "load_smollm2", functools.cache(bfcl.load_smollm2))


def built(reward_tokens):
    config = bfcl.get_config()
    config.reward_tokens = reward_tokens
    return bfcl.build(config)


def test_added_tokens_are_one_id_each_and_the_rest_of_the_model_is_the_same():
    text, added = built("text"), built("added")
    assert bfcl.get_config().reward_tokens == "text"
    assert (text.decoder.vocab_rows, added.decoder.vocab_size, added.decoder.vocab_rows) == (49152, 49154, 49280)
    prompts = {}
    for name, experiment in {"text": text, "added": added}.items():
        shown = [goal_messages()(Task("0"), OPENING, condition) for condition in (0, 1)]
        prompts[name] = [Conversation(experiment.chat, messages).prompt_ids for messages in shown]
    for condition, prompt in enumerate(prompts["added"]):
        assert prompt.count(49152 + condition) == 1
        assert experiment.chat.decode(prompt).count(GOAL_LITERALS[condition]) == 1
    assert max(max(prompt) for prompt in prompts["text"]) < 49152
    assert text.chat.decode(prompts["text"][0]) == added.chat.decode(prompts["added"][0])
    before, after = (experiment.make_params(jax.random.key(0), None) for experiment in (text, added))
    np.testing.assert_array_equal(after["embedding"][:49152], before["embedding"])
    jax.tree.map(np.testing.assert_array_equal, after["layers"], before["layers"])


def test_a_run_with_goals_trains_their_rows_and_leaves_padding_alone(tmp_path):
    config = smallest_run.get_config()
    config.rl.steps = 2
    before = smallest_run.build(config)
    given = before.decoder, before.make_params, before.chat.tokenizer, GOAL_LITERALS
    decoder, make_params, tokenizer = with_special_tokens(*given)
    changes = {
        "decoder": decoder,
        "make_params": make_params,
        "chat": Chat(tokenizer, tokenizer.chat_template),
        "member_messages": reward_goal(bernoulli(0.5), template=" {}"),
    }
    smallest_run.run(config, tmp_path, **changes)
    with smallest_run.machinery_of(config, **changes) as machinery:
        first = machinery.make_params()["embedding"]
        trained, _ = params_of(tmp_path, placed_params(machinery))
    end, goals = decoder.vocab_size, slice(decoder.vocab_size - 2, decoder.vocab_size)
    assert decoder.vocab_padding > 0
    assert np.all(trained["embedding"][goals] != first[goals])
    np.testing.assert_array_equal(trained["embedding"][end:], 0.0)


def test_another_word_is_refused_before_weights_are_read():
    with pytest.raises(ValueError, match="reward_tokens is 'new'; give one of text, added"):
        built("new")
