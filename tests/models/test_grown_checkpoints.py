"""A saved model with added tokens: transformers has the same logits and the same ids; and it comes back bit by bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from rlagents.models.huggingface import load_pretrained, save_pretrained
from rlagents.models.vocabulary import with_special_tokens
from rlagents.rollouts.chat import Chat
from rlagents.rollouts.conditions import GOAL_LITERALS, goal_messages
from rlagents.rollouts.conversation import Conversation
from tests.models.test_huggingface import their_logits
from tests.models.tiny import CONFIGS, full_logits, random_params, relative_error
from tests.rollouts.test_conditions import OPENING
from tests.rollouts.tiny import CHATML, tokenizer

END = 334


@pytest.fixture(
    params=[(name, tied) for name in CONFIGS for tied in (True, False)], ids=lambda p: f"{p[0]} tied={p[1]}"
)
def grown(request):
    name, tied = request.param
    decoder = CONFIGS[name].replace(vocab_size=END, tie_embeddings=tied)
    made = random_params(decoder)
    after, make, larger = with_special_tokens(decoder, lambda key, shardings: made, tokenizer(), GOAL_LITERALS)
    assert (after.vocab_size, after.vocab_padding) == (END + 2, 48)
    return after, make(jax.random.key(1), None), larger


def prompts(chat):
    shown = [goal_messages()(None, OPENING, condition) for condition in (0, 1)]
    ids = [Conversation(chat, messages).prompt_ids for messages in shown]
    assert len(ids[0]) == len(ids[1])
    return np.array(ids)


def test_transformers_has_the_same_logits_and_tokens_and_it_comes_back_bit_by_bit(grown, tmp_path):
    config, params, ours = grown
    save_pretrained(tmp_path, config, params, ours, max_shard_bytes=30_000)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    tokens = prompts(Chat(ours, CHATML))
    np.testing.assert_array_equal(prompts(Chat(theirs, CHATML)), tokens)
    assert set(range(END, END + 2)) <= set(tokens.flat)

    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not any(report.values()), report
    wanted = their_logits(model, tokens)
    assert wanted.shape[-1] == len(theirs) == END + 2
    assert relative_error(full_logits(config, params, tokens)[..., : END + 2], wanted) < 1e-5

    loaded_config, loaded = load_pretrained(tmp_path, dtype=jnp.float32)
    assert loaded_config == config.replace(vocab_padding=0)
    tables = {name: params[name][: END + 2] for name in ("embedding", "head") if name in params}
    jax.tree.map(np.testing.assert_array_equal, loaded, {**params, **tables})
    # With its padding again, as the next run makes it.
    again, make, _ = with_special_tokens(loaded_config, lambda key, shardings: loaded, theirs, GOAL_LITERALS)
    assert again == config
    jax.tree.map(np.testing.assert_array_equal, make(jax.random.key(2), None), params)


def test_the_shards_of_a_padded_model_are_those_of_its_vocabulary(tmp_path):
    """What is told of sizes before a tensor is written is what is written."""
    config = CONFIGS["llama"].replace(vocab_size=END)
    params = random_params(config)
    save_pretrained(tmp_path / "plain", config, params, max_shard_bytes=30_000)
    more = jnp.ones((7, config.embed_dim))
    larger = {**params, **{name: jnp.concatenate([params[name], more]) for name in ("embedding", "head")}}
    save_pretrained(tmp_path / "padded", config.replace(vocab_padding=7), larger, max_shard_bytes=30_000)
    plain, padded = (sorted((tmp_path / name).iterdir()) for name in ("plain", "padded"))
    assert [file.name for file in plain] == [file.name for file in padded]
    assert all(one.read_bytes() == other.read_bytes() for one, other in zip(plain, padded, strict=True))
