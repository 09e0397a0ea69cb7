"""CalibAdv's silver documents and turn scores (arXiv 2604.18235), document by document.

``documents`` of a member: a list of titles-and-texts per turn.
"""


def silver_documents(documents, f1s, valid_formats, minimum_f1):
    """All that the best of the eligible members of a group retrieved."""
    eligible = [i for i in range(len(f1s)) if valid_formats[i] and f1s[i] >= minimum_f1]
    best = max([f1s[i] for i in eligible], default=None)
    out = []
    for i in eligible:
        for turn in documents[i]:
            for document in turn:
                if f1s[i] == best and document not in out:
                    out.append(document)
    return out


def distinct(documents):
    out = []
    for document in documents:
        if document not in out:
            out.append(document)
    return out


def turn_score(documents, turn, silver):
    """The paper's ``c_s = |D_s ∩ silver| / |D_s|``."""
    found = distinct(documents[turn])
    hits = sum(document in silver for document in found)
    return hits / len(found) if found else 0.0


def new_documents_score(documents, turn, silver):
    """As ``turn_score``, but what an earlier turn of the member had found does not count."""
    found = distinct(documents[turn])
    hits = 0
    for document in found:
        earlier = any(document in documents[u] for u in range(turn))
        hits += document in silver and not earlier
    return hits / len(found) if found else 0.0


def most_shared(documents, turn):
    """The largest number of documents that the turn shares with one earlier turn."""
    most = 0
    for u in range(turn):
        most = max(most, sum(document in documents[u] for document in distinct(documents[turn])))
    return most


def edit_similarity(one, other):
    """``1 - Levenshtein / max(len)`` over two lists of words, by the whole table."""
    if not one and not other:
        return 1.0
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i in range(len(one) + 1):
        for j in range(len(other) + 1):
            if i == 0 or j == 0:
                table[i][j] = i + j
            else:
                replaced = table[i - 1][j - 1] + (one[i - 1] != other[j - 1])
                table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, replaced)
    return 1 - table[-1][-1] / max(len(one), len(other))
