"""A tiny tokenizer with the special tokens of ChatML and of Llama 3, and templates that do what real ones do."""

import functools
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rlagents.rollouts.templates import QWEN3

SPECIAL = ["<|pad|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>"]
SPECIAL += ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
CORPUS = [
    "system\nuser\nassistant\ntool\nadd 12\n\ntotal 34\n\n",
    "Count. What is 2 + 2? It is 4. The answer is here.",
    "<think>\nTwo and two.\n</think>\n\n",
    "<tool_response>\n</tool_response>",
] * 4

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Thoughts of earlier turns are dropped, as Qwen3 and R1 do; a single turn renders as QWEN3 does.
FORGETS_THOUGHTS = QWEN3.replace(
    "{{- message.content }}",
    "{%- set said = message.content.split('</think>') %}{{- message.content if loop.last else said[-1] }}",
)
# An empty thought is written into a turn that has none, as Qwen3 does, as long as it is the last.
INJECTS_THOUGHTS = QWEN3.replace(
    "{{- message.content }}",
    "{{- '<think>\\n\\n</think>\\n\\n' if loop.last and '<think>' not in message.content }}{{- message.content }}",
)


@functools.cache
def tokenizer(template: str = CHATML) -> PreTrainedTokenizerFast:
    """Byte-level BPE with a few merges, lossless."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(CORPUS, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token="<|pad|>", eos_token="<|endoftext|>", bos_token="<|begin_of_text|>"
    )
    wrapped.add_special_tokens({"additional_special_tokens": SPECIAL[2:]})
    wrapped.chat_template = template
    return wrapped


@functools.cache
def _real(folder: Path):
    return AutoTokenizer.from_pretrained(folder)


def real_tokenizer(name: str):
    """One of those that launch/fetch_tokenizers.sh brings; skips the test where it is absent."""
    folder = Path(__file__).parents[2] / ".cache" / "tokenizers" / name
    if not (folder / "tokenizer.json").exists():
        pytest.skip(f"{name} is not in .cache/tokenizers: run launch/fetch_tokenizers.sh")
    return _real(folder)
