"""StepSearch's step rewards (arXiv 2505.15107), step by step and gold document by gold document."""

import numpy as np


def information_gains(retrieved, gold, similarity):
    """``G_s``: by how much the best match of each gold document rose above all earlier steps, averaged over them."""
    out = []
    for s in range(len(retrieved)):
        total = 0.0
        for wanted in gold:
            now = max([similarity(document, wanted) for document in retrieved[s]], default=0.0)
            before = 0.0
            for u in range(s):
                for document in retrieved[u]:
                    before = max(before, similarity(document, wanted))
            total += max(0.0, now - before)
        out.append(total / len(gold))
    return out


def redundancies(retrieved):
    """``P_s``: the share of the different documents of a step that an earlier step had found."""
    out = []
    for s in range(len(retrieved)):
        different = []
        for document in retrieved[s]:
            if document not in different:
                different.append(document)
        seen = sum(any(document in retrieved[u] for u in range(s)) for document in different)
        out.append(seen / len(different) if different else 0.0)
    return out


def words(text):
    """Lower-case runs of at least two letters, digits or underscores."""
    out, run = [], ""
    for character in text.lower() + " ":
        if character.isalnum() or character == "_":
            run += character
        else:
            if len(run) > 1:
                out.append(run)
            run = ""
    return out


def tfidf_cosine(one, other, corpus):
    """Cosine of counts times ``ln((1 + n) / (1 + df)) + 1``, over every word that either text has."""
    vocabulary = sorted(set(words(one)) | set(words(other)))
    vectors = np.zeros((2, len(vocabulary)))
    for k, word in enumerate(vocabulary):
        df = sum(word in words(document) for document in corpus)
        idf = np.log((1 + len(corpus)) / (1 + df)) + 1
        vectors[0, k] = words(one).count(word) * idf
        vectors[1, k] = words(other).count(word) * idf
    norms = np.sqrt(np.sum(vectors**2, axis=1))
    if norms[0] == 0 or norms[1] == 0:
        return 0.0
    return float(np.sum(vectors[0] * vectors[1]) / (norms[0] * norms[1]))


def search_key_score(queries, key_groups, f1):
    """The best F1 of any query with any key of a group, averaged over the groups."""
    total = 0.0
    for group in key_groups:
        best = 0.0
        for query in queries:
            for key in group:
                best = max(best, f1(query, key))
        total += best
    return total / len(key_groups)
