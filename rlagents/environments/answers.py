"""Short answers against gold answers, as SQuAD compares them: F1 over words, and exact match.

Both compare normalised texts: lower case, without ASCII punctuation, without the articles a, an and the, white space as
one space. Source: SQuAD's evaluation script, version 2.0 (arXiv 1806.03822), which is the one to follow where a text
has no words left.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Lower case, no punctuation, no articles, single spaces; in this order, so that ``U.S.`` becomes ``us``."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def f1(answer: str, golds: Sequence[str]) -> float:
    """Harmonic mean of precision and recall over words, in ``[0, 1]``; the best over ``golds``.

    ``precision = common / |answer|``, ``recall = common / |gold|``, ``common`` counting a word as often as both have
    it. Where the answer or a gold has no words after normalisation, 1 if neither has any and 0 otherwise.

    Raises ValueError unless ``golds`` is a sequence of at least one string.
    """
    said = normalize(answer).split()
    return max(_f1(said, normalize(gold).split()) for gold in _checked(golds))


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """1 if the normalised answer is one of the normalised ``golds``, else 0; never more than :func:`f1`.

    Raises ValueError unless ``golds`` is a sequence of at least one string.
    """
    return float(normalize(answer) in {normalize(gold) for gold in _checked(golds)})


def _f1(said: list[str], gold: list[str]) -> float:
    if not said or not gold:
        return float(said == gold)
    common = (Counter(said) & Counter(gold)).total()
    # 2 P R / (P + R), without a division by zero where nothing is common.
    return 2 * common / (len(said) + len(gold))


def _checked(golds: Sequence[str]) -> Sequence[str]:
    # A string is a sequence of strings too, and one letter is seldom the answer that was meant.
    if isinstance(golds, str) or not golds or not all(isinstance(gold, str) for gold in golds):
        raise ValueError(f"golds is {golds!r}; expected a sequence of at least one string, such as ['Paris'].")
    return golds
