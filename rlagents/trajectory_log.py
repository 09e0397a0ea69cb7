"""What the policy did and what the method made of it: some groups of a step, token by token, in ``trajectories.jsonl``.

The log-probabilities of logged groups are computed once before and once after the update, in one small pass each over
those groups alone; advantages and masks are what the learner had. All of it is read from the devices a step late.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import jax
import numpy as np

from rlagents.argument_checks import check_above, check_whole
from rlagents.metrics.lines import JsonLines, max_bytes_of
from rlagents.rollouts.trajectory import Trajectory
from rlagents.timing import OneStepLate
from rlagents.token_pieces import TokenPieces
from rlagents.trajectory_lines import group_line
from rlagents.types import Batch, Credit, Kind, Params, Sequences

Scores = Callable[[Params, Sequences], tuple[jax.Array, jax.Array]]
"""``(params, sequences on the host) -> (log-probabilities, entropies) [p g t]`` on the devices; see ``Learner``."""


@dataclasses.dataclass(frozen=True)
class _Taken:
    """A step's logged groups, and what the devices know of their tokens."""

    step: int
    groups: Sequence[Sequence[Trajectory]]
    sequences: Sequences
    before: tuple[jax.Array, jax.Array]
    """Log-probabilities and entropies."""
    learned: tuple[jax.Array, jax.Array | None, jax.Array] | None = None
    """Log-probabilities after the update, advantages, mask."""


@dataclasses.dataclass(frozen=True)
class TrajectoryOptions:
    """How much is logged.

    Attributes:
      every_steps: a step in so many is logged, from step 0 on; 0 logs none.
      groups: of a logged step, the first in stream order.
      max_megabytes: of one file, of 2**20 bytes; then the next is begun.

    Raises:
      ValueError: at construction, for numbers that are none or too small.
    """

    every_steps: int = 1
    groups: int = 1
    max_megabytes: float = 64.0

    def __post_init__(self):
        check_whole("every_steps", self.every_steps, 0)
        check_whole("groups", self.groups, 1)
        check_above("max_megabytes", self.max_megabytes, 0)

    @property
    def max_bytes(self) -> int:
        """Of one file."""
        return max_bytes_of(self.max_megabytes)


class TrajectoryLog:
    """Call ``before`` and ``after`` around the updates of every step, ``flush`` before what must have it behind it.

    Args:
      lines: where groups go, one a line (``trajectory_lines``).
      decode: token ids -> text, special tokens included.
      scores: of the learner.
      options: how much is logged.
      prompt_shards: into how many parts the mesh splits prompts; as many groups pass the model, at least.
    """

    def __init__(
        self,
        lines: JsonLines,
        decode: Callable[[Sequence[int]], str],
        scores: Scores,
        options: TrajectoryOptions,
        *,
        prompt_shards: int = 1,
    ):
        self._lines, self._pieces, self._scores, self._options = lines, TokenPieces(decode), scores, options
        self._rows = math.ceil(options.groups / prompt_shards) * prompt_shards
        self._open: _Taken | None = None
        self._late = OneStepLate[_Taken]()

    def before(self, step: int, groups: Sequence[Sequence[Trajectory]], batch: Batch, params: Params) -> None:
        """Look at the first ``groups``, the first rows of the host's ``batch``, with the weights before the update."""
        self._open = None
        every = self._options.every_steps
        if every and step % every == 0:
            sequences = jax.tree.map(lambda leaf: leaf[: self._rows], batch.sequences)
            self._open = _Taken(step, groups[: self._options.groups], sequences, self._scores(params, sequences))

    def after(self, credit: Credit, params: Params) -> None:
        """Look at them with the weights after the update, and write what was held of the step before."""
        taken, self._open = self._open, None
        if taken is None:
            return
        log_prob, _ = self._scores(params, taken.sequences)
        advantages, mask = jax.tree.map(lambda leaf: leaf[: self._rows], (credit.advantages, credit.mask))
        self._write(self._late.put(dataclasses.replace(taken, learned=(log_prob, advantages, mask))))

    def flush(self) -> None:
        """Write what is held."""
        self._write(self._late.last())

    def _write(self, taken: _Taken | None) -> None:
        if taken is None or taken.learned is None:
            return
        (old, entropy), (new, advantages, mask) = jax.device_get((taken.before, taken.learned))
        advantages = np.zeros_like(old) if advantages is None else advantages
        for row, group in enumerate(taken.groups):
            tokens = []
            for column, member in enumerate(group):
                end = int(taken.sequences.length[row, column])
                place = (row, column, slice(end - len(member.token_ids), end))
                written = np.asarray(member.kinds) == Kind.MODEL
                # The learner's padding and what nobody sampled may be anything.
                moved = np.where(written, new[place] - old[place], 0)
                tokens.append(
                    {
                        "pieces": self._pieces(member.token_ids),
                        "id": member.token_ids,
                        "kind": member.kinds,
                        "turn": member.turns,
                        "mask": mask[place],
                        "log_prob": member.log_probs,
                        "entropy": np.where(written, entropy[place], 0),
                        "ratio": np.exp(np.clip(moved, -20, 20)),
                        "advantage": np.where(mask[place], advantages[place], 0),
                    }
                )
            self._lines.write(group_line(taken.step, [member.summary() for member in group], tokens))


def held_out_lines(lines: JsonLines, step: int, groups: Sequence[Sequence[Trajectory]]) -> None:
    """Write the conversations of an evaluation after ``step`` steps, a line a group; nothing is learned from them."""
    for group in groups:
        lines.write(group_line(step, [member.summary() for member in group]))
