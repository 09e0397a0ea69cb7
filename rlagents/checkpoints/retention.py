"""Which checkpoints stay: the newest, the best, and every so many for good."""

import math
from collections.abc import Mapping


def kept(
    scores: Mapping[int, float | None], *, keep_last: int, keep_best: int = 0, keep_every_steps: int | None = None
) -> set[int]:
    """Steps to keep of ``scores``, which has the score of every checkpoint, None for those without one.

    The ``keep_last`` newest, always; of those with a score the ``keep_best`` highest, of equal ones the newer; and
    those whose step is a multiple of ``keep_every_steps``. A score that is not finite is none.
    """
    scored = [step for step, score in scores.items() if score is not None and math.isfinite(score)]
    best = sorted(scored, key=lambda step: (scores[step], step))[max(0, len(scored) - keep_best) :]
    every = [step for step in scores if keep_every_steps is not None and step % keep_every_steps == 0]
    return {*sorted(scores)[-keep_last:], *best, *every}
