"""A small tokenizer for models trained from scratch: whole words where they are known, bytes where they are not."""

import re
from collections import Counter
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD_TOKEN = "<|pad|>"
END_TOKEN = "<|end|>"
ROLE_TOKENS = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")

# One token opens a message and one closes it: at this size of model the scaffolding must not outweigh the content.
COMPACT_CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

WORDS = r" ?[A-Za-z_]+|\d{1,2}| ?[^A-Za-z_\d\s]+|\s"
"""Words and runs of punctuation marks with their leading space, digits in pairs; the pieces of a text are all of it.

A number below 100 is one token: copied digit by digit, ``79`` after ``72`` would have to be told apart by its place.
"""


def word_tokenizer(
    texts: Iterable[str], *, max_words: int, pattern: str = WORDS, chat_template: str = COMPACT_CHAT_TEMPLATE
) -> PreTrainedTokenizerFast:
    """A token for each of the ``max_words`` most frequent pieces of ``texts``, and one for every byte.

    ``pattern`` splits a text into pieces; a piece that is no token is spelled in bytes, so nothing is ever lost. With
    ``WORDS`` a word and the same word after a space are different tokens, so values that a model is to copy should
    stand in quotes. The same texts give the same tokenizer. Raises ``ValueError`` for a negative ``max_words``.
    """
    if max_words < 0:
        raise ValueError(f"max_words is {max_words}; give 0 (bytes alone) or more.")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    counts = Counter(piece for text in texts for piece in re.findall(pattern, text))
    # Ties by spelling: the order in which texts come must not matter.
    frequent = sorted(counts, key=lambda piece: (-counts[piece], piece))[:max_words]
    words = [spell.pre_tokenize_str(piece)[0][0] for piece in frequent if len(piece.encode()) > 1]
    vocabulary = [PAD_TOKEN, END_TOKEN, *ROLE_TOKENS, *alphabet, *words]
    # Without merges, BPE that looks a whole piece up first is a word-level model that falls back to bytes.
    model = models.BPE({token: index for index, token in enumerate(vocabulary)}, [], ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), spell])
    tokenizer.decoder = decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD_TOKEN, eos_token=END_TOKEN)
    wrapped.add_special_tokens({"additional_special_tokens": list(ROLE_TOKENS)})
    wrapped.chat_template = chat_template
    return wrapped
