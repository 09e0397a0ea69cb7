"""The cells of the paper's table and of the sweeps, each a run of ``procedural.py``, and what they are asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes:
      name: of its folder, within that of the seed.
      title: in the table.
      variant: of ``experiments/rc_grpo/procedural.py``.
      parent: the cell whose weights it begins with; "" for random ones.
      asked: the goal that it is evaluated with first of all: as it was trained, or high where both were trained.
      options: config keys beside those of the variant.
    """

    name: str
    title: str
    variant: str
    parent: str
    asked: str
    options: Mapping[str, Any] = field(default_factory=dict)


BASE = Cell("base", "Base", "base", "", "none")
SFT = Cell("sft", "SFT", "sft", "base", "none")
RCTP = Cell("rctp", "RCTP", "rctp", "base", "high")
STAGE_1 = (BASE, SFT, RCTP)

GRPO = tuple(Cell(f"{first.name}+grpo", f"{first.title} + GRPO", "grpo", first.name, "none") for first in STAGE_1)
RC_GRPO = tuple(
    Cell(f"{first.name}+rc-grpo", f"{first.title} + RC-GRPO", "rc-grpo", first.name, "high") for first in STAGE_1
)
GRID = (*STAGE_1, *(cell for pair in zip(GRPO, RC_GRPO) for cell in pair))
"""Parents before their children."""

OURS = RC_GRPO[2]


def _varied(title: str, **options: Any) -> Cell:
    """RCTP + RC-GRPO with some keys of its config changed, ``__`` for a dot."""
    keys = {name.replace("__", "."): value for name, value in options.items()}
    name = "+".join([OURS.name, *(f"{key.rpartition('.')[2]}={value}" for key, value in keys.items())])
    return Cell(name, title, "rc-grpo", "rctp", "high", keys)


SWEEPS: dict[str, Sequence[Cell]] = {
    "high_probability": tuple(
        _varied(f"p = {p}", goals__high_probability=p) if p != 0.5 else OURS for p in (0.1, 0.3, 0.5, 0.7, 0.9)
    ),
    "group_size": tuple(
        # As many trajectories a step, or nearly.
        _varied(f"G = {g}", rl__group_size=g, rl__prompts_per_step=p, rl__prompts_per_micro_batch=p) if g != 5 else OURS
        for g, p in ((2, 80), (5, 32), (8, 20), (16, 10))
    ),
    "draw": (
        OURS,
        *(_varied(f"exactly {k} of 5", goals__draw="exactly", goals__high_members=k) for k in (1, 2, 3, 4)),
    ),
}
"""What is varied -> cells, of RCTP + RC-GRPO: the share that is asked for a high reward, the members of a group, and
whether their goals are drawn independently or exactly so many are high."""

PAPER: dict[str, tuple[float, float]] = {
    "base": (11.25, 0.00),
    "sft+grpo": (48.75, 35.00),
    "sft+rc-grpo": (46.25, 35.00),
    "rctp+grpo": (73.75, 46.25),
    "rctp+rc-grpo": (85.00, 48.75),
}
"""Cell -> success in percent of Qwen2.5-7B and LLaMA-3.1-8B on 80 tasks of BFCL v4 (arXiv 2602.03025, main table)."""


def with_parents(cells: Sequence[Cell]) -> list[Cell]:
    """The cells and all that they begin with, parents first, each once."""
    known = {cell.name: cell for cell in GRID}
    found: dict[str, Cell] = {}

    def add(cell: Cell) -> None:
        if cell.parent and cell.parent not in found:
            add(known[cell.parent])
        found.setdefault(cell.name, cell)

    for cell in cells:
        add(cell)
    return list(found.values())
