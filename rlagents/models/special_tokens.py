"""Special tokens added to a tokenizer: each literal becomes one id wherever a text spells it."""

import copy
from collections.abc import Sequence
from typing import TypeVar

from transformers import AddedToken, PreTrainedTokenizerBase

T = TypeVar("T", bound=PreTrainedTokenizerBase)


def add_special_tokens(tokenizer: T, literals: Sequence[str]) -> tuple[T, tuple[int, ...]]:
    """A copy of ``tokenizer`` in which every literal is a special token, and their ids in the order given.

    A literal that is a special token already keeps its id. All others get the ids after the largest one. Texts without
    a literal are tokenised as before. Saved with the model, the tokenizer has them too.

    Which text becomes the token is the law of :class:`rlagents.rollouts.chat.Chat`, the same as for ``<|im_end|>``: the
    text of every message that is rendered (openings, observations of tools, demonstrations) is tokenised as it stands,
    so a literal in it becomes the token, whoever spelled it. What the model writes is never tokenised again: a policy
    that spells a literal in pieces has written pieces, and where it samples the token, environments do not see it.
    Neither gives it a reward: masks and conditions come from who wrote a token and what was drawn, never from ids.

    Raises:
      ValueError: no literal, two alike, one that is no text or does not begin and end with a visible character, one
        that the vocabulary has as an ordinary piece (as a special token it would vanish from what environments see), or
        one that holds another special token or is part of it.
    """
    _check(literals)
    vocabulary = tokenizer.get_vocab()
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    for literal in literals:
        if literal in vocabulary and literal not in special:
            raise ValueError(
                f"{literal!r} is token {vocabulary[literal]} already, and an ordinary one: as a special token it would "
                "vanish from the text that environments see. Choose another spelling."
            )
        for other in sorted({*special, *literals} - {literal}):
            if literal in other or other in literal:
                raise ValueError(
                    f"of the special tokens {literal!r} and {other!r} one holds the other: which of them a text means "
                    "would depend on what stands beside it. Choose another spelling."
                )
    grown = copy.deepcopy(tokenizer)
    grown.add_tokens([AddedToken(text, special=True, normalized=False) for text in literals], special_tokens=True)
    return grown, tuple(int(grown.get_vocab()[literal]) for literal in literals)


def vocabulary_end(tokenizer: PreTrainedTokenizerBase) -> int:
    """The largest token id plus 1: how many rows an embedding needs at least."""
    return max(tokenizer.get_vocab().values()) + 1


def _check(literals: Sequence[str]) -> None:
    if isinstance(literals, str) or not literals or len(set(literals)) != len(literals):
        raise ValueError(f"the special tokens are {literals!r}; give a list of texts, at least one, no two alike.")
    for literal in literals:
        if not isinstance(literal, str) or not literal or literal != literal.strip():
            raise ValueError(f"the special token {literal!r} is no text that begins and ends with a visible character.")
