"""R_action: whether the calls of a trajectory are those that its task asked for, in two readings of the paper's words.

    existence:   for all a* in truth there is a call a with Match(a, a*)
    one to one:  the same, and no call stands for two of the truth

    Match(a, a*): a.name == a*.name and a.args[k] == v for all (k, v) in a*.args

Order, further calls and further arguments are free in both. They differ where the truth makes a call twice: the paper
speaks of a set, which is existence. Source: RC-GRPO (arXiv 2602.03025), appendix D.
"""

from collections.abc import Callable, Sequence

from rlagents.tools.function_calls import ParsedCall

Truth = Sequence[Sequence[ParsedCall]]
"""User turn -> the calls that satisfy it."""

ActionRule = Callable[[Sequence[ParsedCall], Truth], bool]
"""``(calls made, truth) -> R_action``."""

_MISSING = object()


def each_exists(calls: Sequence[ParsedCall], truth: Truth) -> bool:
    """R_action by existence: one call may stand for any number of equal ones."""
    return all(any(call_covers(call, wanted) for call in calls) for turn in truth for wanted in turn)


def one_to_one(calls: Sequence[ParsedCall], truth: Truth) -> bool:
    """R_action with a call of its own for each of the truth's: a matching in the graph of Match that covers the truth.

    Augmenting paths: a call that is taken is given up if what it stood for finds another one.
    """
    wanted_calls = [wanted for turn in truth for wanted in turn]
    covering = [[made for made, call in enumerate(calls) if call_covers(call, wanted)] for wanted in wanted_calls]
    stands_for: dict[int, int] = {}

    def found(wanted: int, tried: set[int]) -> bool:
        for made in covering[wanted]:
            if made not in tried:
                tried.add(made)
                if made not in stands_for or found(stands_for[made], tried):
                    stands_for[made] = wanted
                    return True
        return False

    return all(found(wanted, set()) for wanted in range(len(wanted_calls)))


def call_covers(call: ParsedCall, wanted: ParsedCall) -> bool:
    """Match(a, a*): the same tool, and every wanted argument with an equal value; further arguments are free."""
    return call.name == wanted.name and all(
        call.arguments.get(key, _MISSING) == value for key, value in wanted.arguments.items()
    )
