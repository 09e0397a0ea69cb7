"""Search gains: what each search adds to what was known of the gold documents, less what it repeats.

    M_j^s = max over documents d of step s of similarity(d, gold_j)
    G_s = mean_j max(0, M_j^s - max_{u<s} M_j^u)          information gain
    P_s = |D_s ∩ (D_1 ∪ ... ∪ D_{s-1})| / |D_s|           redundancy
    score_s = scale * (G_s - P_s)

``D_s`` is the set of documents of step ``s``; before the first step a maximum is 0, and a step that retrieved nothing
has ``G_s = P_s = 0``. Source: StepSearch (arXiv 2505.15107).
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rlagents.environments.answers import f1
from rlagents.environments.retrieved import documents_by_turn

Similarity = Callable[[str, str], float]
"""``(document, gold) -> similarity``: finite, the same at every call; in ``[0, 1]`` if gains are to be."""

_WORD = re.compile(r"\w\w+")


def step_scores(
    retrieved: Sequence[Sequence[str]],
    gold: Sequence[str],
    similarity: Similarity | None = None,
    scale: float = 0.6,
) -> list[float]:
    """``scale * (G_s - P_s)`` of each turn: the rewards that StepSearch gives at the end of each search.

    The released code adds the scaled score to the score in place, so that its effective factor is 1.6: ``scale=1.6``.

    Args:
      retrieved: documents of each model turn; empty for a turn without a search.
      gold: documents that answer the question, at least one.
      similarity: None for ``tfidf_similarity(gold)``, whose weights are then those of the task, alike for all members.
      scale: weight of a step beside the outcome.

    Raises:
      ValueError: no gold document, documents that are not strings, a similarity or a scale that is not finite.
    """
    if not math.isfinite(scale):
        raise ValueError(f"scale={scale}; expected a finite number, such as 0.6.")
    gains = information_gains(retrieved, gold, similarity)
    return [scale * (gain - repeated) for gain, repeated in zip(gains, redundancies(retrieved), strict=True)]


def information_gains(
    retrieved: Sequence[Sequence[str]], gold: Sequence[str], similarity: Similarity | None = None
) -> list[float]:
    """``G_s`` of each turn. They add up to the mean over ``gold`` of ``max(0, best similarity of any document)``.

    Arguments and errors are those of :func:`step_scores`.
    """
    if isinstance(gold, str) or not gold:
        raise ValueError(f"gold is {gold!r:.80}; expected a sequence of at least one document.")
    similarity = tfidf_similarity(gold) if similarity is None else similarity
    best = [0.0] * len(gold)
    seen: set[str] = set()
    gains = []
    for documents in documents_by_turn(retrieved):
        # A document seen before cannot rise above itself: leaving it out changes no gain.
        fresh = documents - seen
        now = [max((_finite(similarity(document, wanted)) for document in fresh), default=0.0) for wanted in gold]
        gains.append(sum(max(0.0, new - old) for new, old in zip(now, best)) / len(gold))
        best = list(map(max, best, now))
        seen |= documents
    return gains


def redundancies(retrieved: Sequence[Sequence[str]]) -> list[float]:
    """``P_s`` of each turn, in ``[0, 1]``: the share of its documents that earlier turns had retrieved."""
    seen: set[str] = set()
    shares = []
    for documents in documents_by_turn(retrieved):
        shares.append(len(documents & seen) / len(documents) if documents else 0.0)
        seen |= documents
    return shares


def tfidf_similarity(corpus: Sequence[str]) -> Similarity:
    """Cosine of TF-IDF vectors, in ``[0, 1]``; picklable.

    ``weight(word, text) = count(word, text) * (ln((1 + n) / (1 + df(word))) + 1)``, ``df`` being the number of the
    ``n`` texts of ``corpus`` with that word. Words are lower-case runs of at least two letters, digits or underscores.
    A word that the corpus lacks has ``df = 0`` and counts in a text's norm. 0 where a text has no words.

    Raises ValueError where ``corpus`` is one string.
    """
    if isinstance(corpus, str):
        raise ValueError(f"corpus is the string {corpus!r:.80}; expected a sequence of documents.")
    df = Counter(word for document in corpus for word in set(_words(document)))
    idf = {word: math.log((1 + len(corpus)) / (1 + count)) + 1 for word, count in df.items()}
    return partial(_cosine, idf, math.log(1 + len(corpus)) + 1)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _cosine(idf: Mapping[str, float], unknown: float, one: str, other: str) -> float:
    first, second = (
        {word: count * idf.get(word, unknown) for word, count in Counter(_words(text)).items()} for text in (one, other)
    )
    norms = math.hypot(*first.values()) * math.hypot(*second.values())
    if norms == 0:
        return 0.0
    # Of equal texts the quotient may round to a little over 1.
    return min(1.0, math.fsum(weight * second.get(word, 0.0) for word, weight in first.items()) / norms)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"the similarity of a document is {value!r}; expected a finite number.")
    return value


def search_key_score(queries: Sequence[str], key_groups: Sequence[Sequence[str]]) -> float:
    """How well the queries cover the sub-questions, in ``[0, 1]``: ``mean over groups of max over queries of F1``.

    Args:
      queries: that the trajectory made; none scores 0.
      key_groups: for each sub-question its search keys, of which the best counts (SQuAD's F1).

    Raises:
      ValueError: no group, a group without keys, a string where a sequence of them belongs.
    """
    for name, value in (("queries", queries), ("key_groups", key_groups)):
        if isinstance(value, str):
            raise ValueError(f"{name} is the string {value!r:.80}; expected a sequence.")
    for group in key_groups:
        if isinstance(group, str) or not group:
            raise ValueError(f"a key group is {group!r:.80}; expected a sequence of at least one search key.")
    if not key_groups:
        raise ValueError("key_groups is empty; expected the search keys of at least one sub-question.")
    return sum(max((f1(query, keys) for query in queries), default=0.0) for keys in key_groups) / len(key_groups)


def step_search_outcome(
    answer: str | None,
    golds: Sequence[str],
    queries: Sequence[str],
    key_groups: Sequence[Sequence[str]],
    key_weight: float = 0.618,
) -> float:
    """The reward of a whole trajectory: ``F1(answer) + key_weight * search_key_score``; -1 if ``answer`` is None.

    Args:
      answer: the final answer; None where the trajectory ended without one.
      golds: gold answers, of which the best counts.
      queries: as in :func:`search_key_score`, and ``key_groups`` with it.
      key_groups: see above.
      key_weight: weight of the search keys beside the answer.

    Raises:
      ValueError: a ``key_weight`` that is not finite, no gold answer, and what :func:`search_key_score` refuses.
    """
    if not math.isfinite(key_weight):
        raise ValueError(f"key_weight={key_weight}; expected a finite number, such as 0.618.")
    keys = search_key_score(queries, key_groups)
    return -1.0 if answer is None else f1(answer, golds) + key_weight * keys
