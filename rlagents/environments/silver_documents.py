"""Silver documents: what the best members of a group retrieved, and each turn's score against it.

    D_silver = union of all documents retrieved, at any turn, by the members of best F1 among the eligible
    c_s = |D_s ∩ D_silver| / |D_s|

Eligible is who kept the format and reached a minimum F1. Both need the whole group, so ``Environment.score`` computes
them and hands them on as ``Outcome.turn_scores``, which ``methods.soften_negative_turns`` reads.
Source: CalibAdv (arXiv 2604.18235), silver documents. The paper's released code counts less of what a turn found; each
of its ways is a :data:`Refinement` here, and none is on unless asked for.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from rlagents.environments.edit_similarity import edit_similarity
from rlagents.environments.retrieved import documents_by_turn


@dataclass(frozen=True)
class SearchRecord:
    """What one member of a group searched, and what came of it. Picklable.

    Attributes:
      documents: those that each model turn retrieved, the answer's turn included; empty for a turn without a search.
      f1: of the answer, in ``[0, 1]``.
      valid_format: whether the whole trajectory kept the format.
      thoughts: the thought of each turn; None where nobody asks for it.

    Raises:
      ValueError: an F1 outside ``[0, 1]`` or NaN, documents that are not sequences of strings, another number of
        thoughts than of turns.
    """

    documents: Sequence[Sequence[str]]
    f1: float
    valid_format: bool
    thoughts: Sequence[str] | None = None

    def __post_init__(self):
        if not 0 <= self.f1 <= 1:
            raise ValueError(f"f1 is {self.f1!r}; expected a number from 0 to 1.")
        if not isinstance(self.valid_format, bool):
            raise ValueError(f"valid_format is {self.valid_format!r}; expected True or False.")
        num_turns = len(self.found)
        if isinstance(self.thoughts, str) or (self.thoughts is not None and len(self.thoughts) != num_turns):
            raise ValueError(
                f"{len(self.thoughts)} thoughts ({type(self.thoughts).__name__}) came with documents of {num_turns} "
                "turns; give a list of one thought a turn, an empty one where the turn has none."
            )

    @cached_property
    def found(self) -> tuple[frozenset[str], ...]:
        """``D_s`` of each turn: a set, so a document that one turn retrieves twice counts once."""
        return documents_by_turn(self.documents)


Refinement = Callable[[SearchRecord, int], Set[str]]
"""``(member, turn) -> documents`` of that turn which may count. The others stay in ``|D_s|`` and earn nothing."""


def silver_documents(members: Sequence[SearchRecord], minimum_f1: float = 0.7) -> frozenset[str]:
    """All documents of the members with the group's best F1, among those of valid format and ``f1 >= minimum_f1``.

    Empty where no member is eligible; every score is then 0 and every turn keeps its penalty.

    Raises ValueError unless ``0 <= minimum_f1 <= 1``.
    """
    if not 0 <= minimum_f1 <= 1:
        raise ValueError(f"minimum_f1={minimum_f1}; expected a number from 0 to 1, such as 0.7.")
    eligible = [member for member in members if member.valid_format and member.f1 >= minimum_f1]
    best = max((member.f1 for member in eligible), default=None)
    return frozenset().union(*(turn for member in eligible if member.f1 == best for turn in member.found))


def turn_scores(
    members: Sequence[SearchRecord], silver: Set[str], refinements: Sequence[Refinement] = ()
) -> list[list[float]]:
    """``c_s`` in ``[0, 1]`` of each turn of each member; 0 for a turn that retrieved nothing.

    ``c_s = |D_s ∩ silver ∩ refinement_1(s) ∩ ...| / |D_s|``: a refinement only lowers a score, and their order is free.
    The released code has 1e-6 where this has 0. In the paper the last turn of a trajectory is its answer, which has no
    score whatever it holds: give it no documents, should the episode end at a search.

    Args:
      members: of one group; each is scored, whatever became of it.
      silver: such as :func:`silver_documents` of the same members.
      refinements: such as those below; none is the paper.
    """
    return [[_score(member, turn, silver, refinements) for turn in range(len(member.found))] for member in members]


def _score(member: SearchRecord, turn: int, silver: Set[str], refinements: Sequence[Refinement]) -> float:
    found = member.found[turn]
    counting = found & silver
    for refinement in refinements:
        # The costly ones need not be asked once nothing is left to take away.
        if counting:
            counting &= refinement(member, turn)
    return len(counting) / len(found) if found else 0.0


def new_documents(member: SearchRecord, turn: int) -> frozenset[str]:
    """Only what no earlier turn of the member had retrieved."""
    return member.found[turn].difference(*member.found[:turn])


def new_search(member: SearchRecord, turn: int, *, maximum_shared: int = 1) -> frozenset[str]:
    """Nothing if the turn shares more than ``maximum_shared`` documents with any single earlier turn of the member.

    Another number: ``functools.partial(new_search, maximum_shared=2)``. Raises ValueError if it is negative.
    """
    if not maximum_shared >= 0:
        raise ValueError(f"maximum_shared={maximum_shared}; expected a number of documents, at least 0.")
    found = member.found[turn]
    repeats = any(len(found & earlier) > maximum_shared for earlier in member.found[:turn])
    return frozenset() if repeats else found


def new_thought(member: SearchRecord, turn: int, *, maximum_similarity: float = 0.5) -> frozenset[str]:
    """Nothing if the turn's thought has an edit similarity over ``maximum_similarity`` with any earlier one.

    The similarity goes by words (:func:`rlagents.environments.edit_similarity.edit_similarity`, the first 2000 of each
    thought). Another bound: ``functools.partial(new_thought, maximum_similarity=0.7)``.

    Raises ValueError if the member came without thoughts, or unless ``0 <= maximum_similarity <= 1``.
    """
    if not 0 <= maximum_similarity <= 1:
        raise ValueError(f"maximum_similarity={maximum_similarity}; expected a number from 0 to 1, such as 0.5.")
    if member.thoughts is None:
        raise ValueError("new_thought compares thoughts and a member has none; give SearchRecord its thoughts.")
    thought = member.thoughts[turn]
    repeats = any(edit_similarity(thought, earlier) > maximum_similarity for earlier in member.thoughts[:turn])
    return frozenset() if repeats else member.found[turn]


def valid_format(member: SearchRecord, turn: int) -> frozenset[str]:
    """Nothing for a member of invalid format: all its turns keep their penalty."""
    return member.found[turn] if member.valid_format else frozenset()


RELEASED_CODE: tuple[Refinement, ...] = (valid_format, new_documents, new_search, new_thought)
"""All that CalibAdv's released code adds to the paper."""
