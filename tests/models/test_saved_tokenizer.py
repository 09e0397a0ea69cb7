"""A saved folder is whole: transformers finds the tokenizer and its chat template beside the weights."""

import transformers

from rlagents.models.huggingface import save_pretrained
from tests.models.tiny import CONFIGS, random_params
from tests.rollouts.tiny import CHATML, tokenizer


def test_the_tokenizer_is_saved_beside_the_weights(tmp_path):
    config, ours = CONFIGS["qwen3"], tokenizer()
    ours.chat_template = CHATML
    save_pretrained(tmp_path, config, random_params(config), ours)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "add 12 <|im_end|> and more"
    assert theirs.encode(text) == ours.encode(text)
    messages = [{"role": "user", "content": "add 2"}]
    assert theirs.apply_chat_template(messages, tokenize=False) == "<|im_start|>user\nadd 2<|im_end|>\n"
    assert transformers.AutoConfig.from_pretrained(tmp_path).model_type == "qwen3"
