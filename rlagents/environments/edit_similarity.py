"""How alike two texts are, word by word, at a bounded cost however long they are."""

import numpy as np

MAX_WORDS = 2000


def edit_similarity(one: str, other: str, *, max_words: int = MAX_WORDS) -> float:
    """``1 - Levenshtein(words) / max(number of words)``, in ``[0, 1]``; symmetric, 1 where both have no words.

    Words are what white space separates, letter case and all. Texts that a model wrote may be of any length and the
    cost is the product of both, so only the first ``max_words`` words of each are compared: with 2000, at most
    4 million cells.

    Raises ValueError unless ``max_words >= 1``.
    """
    if not max_words >= 1:
        raise ValueError(f"max_words={max_words}; expected at least 1.")
    words = [text.split(maxsplit=max_words)[:max_words] for text in (one, other)]
    longest = max(map(len, words))
    return 1.0 if longest == 0 else 1.0 - _edit_distance(*words) / longest


def _edit_distance(one: list[str], other: list[str]) -> int:
    """Insertions, deletions and replacements that turn one list into the other."""
    numbers: dict[str, int] = {}
    first, second = (
        np.array([numbers.setdefault(word, len(numbers)) for word in words], np.int64) for words in (one, other)
    )
    columns = np.arange(len(second) + 1)
    row = columns
    for done, word in enumerate(first, start=1):
        kept_or_replaced = row[:-1] + (second != word)
        best = np.concatenate(([done], np.minimum(row[1:] + 1, kept_or_replaced)))
        # An insertion costs one a column: a running minimum of what is left after taking that off.
        row = np.minimum.accumulate(best - columns) + columns
    return int(row[-1])
