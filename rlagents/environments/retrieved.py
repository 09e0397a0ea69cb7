"""Documents that the turns of a trajectory retrieved: one set a turn, checked where they come in."""

from collections.abc import Sequence


def documents_by_turn(retrieved: Sequence[Sequence[str]]) -> tuple[frozenset[str], ...]:
    """The documents of each turn as a set: order and repeats within a turn mean nothing.

    A document is known by its exact text, such as title and passage; a turn without a search has none.

    Raises ValueError where a turn is a string instead of a sequence of strings, or a document is no string.
    """
    for turn, documents in enumerate(retrieved):
        if isinstance(documents, str):
            raise ValueError(f"the documents of turn {turn} are {documents!r:.80}; expected a sequence of strings.")
        for document in documents:
            if not isinstance(document, str):
                raise ValueError(f"a document of turn {turn} is {document!r:.80}; expected a string, title and text.")
    return tuple(frozenset(documents) for documents in retrieved)
