"""The lengths that sequences are padded to: chosen for the least waste, or to bound it whatever comes.

A config gives them to ``collate`` as ``prefix_buckets`` and ``member_buckets``. Where a run's lengths are known (of an
earlier run, or of the prompts alone), ``buckets_for`` takes them; where they are not, ``buckets_within`` does without:

    config.buckets.prefix_buckets = buckets_for(prefix_lengths, 3, multiple_of=64)
    config.buckets.member_buckets = buckets_within(640, 0.5, multiple_of=64)  # (64, 128, 192, 320, 640)

More buckets are less padding and more programs to compile. ``collate`` pads a whole batch to the bucket of its longest
member; with ``rl.pack_micro_batches`` each micro-batch has buckets of its own, and that is where short ones pay.
"""

import math
from collections.abc import Sequence

import numpy as np

from rlagents.argument_checks import check_whole, is_number, is_whole


def buckets_for(lengths: Sequence[int], count: int, *, multiple_of: int = 1) -> tuple[int, ...]:
    """Return at most ``count`` buckets that waste the fewest positions on ``lengths``, in ascending order.

    The waste is ``sum_i (bucket(n_i) - n_i)`` with ``bucket(n)`` the smallest bucket that holds ``n``. Exact, by
    dynamic programming over the ``d`` distinct lengths in ``O(count d^2)``: the best ``k`` buckets for the ``j``
    shortest are the best ``k - 1`` for the ``i < j`` shortest, and the length of the ``j``-th. There are fewer buckets
    than ``count`` only where they waste nothing.

    Args:
      lengths: in tokens, each 0 or more, as often as they occur.
      count: number of buckets.
      multiple_of: divides every bucket; a hardware's tile, say.

    Raises:
      ValueError: no lengths, or one that is no whole number from 0 on; ``count`` or ``multiple_of`` is none from 1 on.
    """
    check_whole("count", count, 1)
    check_whole("multiple_of", multiple_of, 1)
    unfit = [f"a length of {length!r}" for length in lengths if not is_whole(length) or length < 0]
    if unfit or not len(lengths):
        found = unfit[0] if unfit else "no lengths"
        raise ValueError(f"found {found}; give at least one length, each a whole number >= 0.")
    # Some best bucket set has only these: any other bucket can be lowered to the next of them.
    sizes, occurrences = np.unique(_rounded_up(np.asarray(lengths), multiple_of), return_counts=True)
    held = np.concatenate([[0], np.cumsum(occurrences)])
    # positions[i, j]: what lengths i..j cost in the bucket of length j. What they hold themselves is the same always.
    positions = (held[None, 1:] - held[:-1, None]) * sizes[None, :].astype(float)
    positions[np.tril_indices(len(sizes), -1)] = np.inf

    total, choices = positions[0], []
    for _ in range(1, min(count, len(sizes))):
        # before[i]: the cheapest way to hold all lengths below i with one bucket less.
        before = np.concatenate([[0.0], total[:-1]])
        choices.append(np.argmin(before[:, None] + positions, axis=0))
        total = np.min(before[:, None] + positions, axis=0)

    last = len(sizes) - 1
    buckets = [int(sizes[last])]
    for choice in reversed(choices):
        last = choice[last] - 1
        buckets.append(int(sizes[last]))
    return tuple(reversed(buckets))


def buckets_within(longest: int, most_waste: float, *, multiple_of: int = 1) -> tuple[int, ...]:
    """Return the fewest buckets that hold 1 to ``longest`` tokens and waste a share ``most_waste`` at most.

    The waste of ``n`` tokens in a bucket of ``b`` is ``(b - n) / b``. Rounding to ``multiple_of`` wastes up to
    ``multiple_of - 1`` positions anyway, so what holds is ``b - n <= max(most_waste * b, multiple_of - 1)``. The
    buckets fall geometrically from the longest, each about ``1 - most_waste`` of the one before.

    Args:
      longest: in tokens, 1 or more.
      most_waste: share of a bucket, in ``(0, 1)``.
      multiple_of: divides every bucket.

    Raises:
      ValueError: ``longest`` or ``multiple_of`` is no whole number from 1 on; ``most_waste`` is none in
        ``(0, 1)``.
    """
    check_whole("longest", longest, 1)
    check_whole("multiple_of", multiple_of, 1)
    if not is_number(most_waste) or not 0 < most_waste < 1:
        raise ValueError(
            f"most_waste is {most_waste!r}; give the share of a bucket that may be empty, above 0, below 1."
        )
    buckets = [int(_rounded_up(np.asarray(longest), multiple_of))]
    while True:
        largest = buckets[-1]
        shortest = largest - max(math.floor(most_waste * largest), multiple_of - 1)
        if shortest <= 1:
            return tuple(reversed(buckets))
        buckets.append(int(_rounded_up(np.asarray(shortest - 1), multiple_of)))


def _rounded_up(lengths: np.ndarray, multiple_of: int) -> np.ndarray:
    """The smallest multiples that hold the lengths; a bucket for nothing at all still has a position."""
    return np.maximum(-(-lengths // multiple_of), 1) * multiple_of
