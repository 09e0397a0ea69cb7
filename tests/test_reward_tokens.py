"""Reward goals of the BFCL experiment: plain text, or a special token each; SmolLM2's real weights and tokenizer."""

import jax
import numpy as np
import pytest

from experiments.rc_grpo import bfcl
from rlagents.facts import Opening, Task
from rlagents.rollouts.conditions import GOAL_LITERALS, goal_messages
from rlagents.rollouts.conversation import Conversation

OPENING = Opening([{"role": "user", "content": "List the files."}])


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


def test_another_word_is_refused_before_weights_are_read():
    with pytest.raises(ValueError, match="reward_tokens is 'new'; give 'text' or 'added'"):
        built("new")
