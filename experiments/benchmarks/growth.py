"""How time, memory and compile time of a training step's gradient pass grow with each size, one at a time.

    python -m experiments.benchmarks.growth
    python -m experiments.benchmarks.growth --axis vocab --sizes vocab=8192,152000 --d 128

Other flags are those of ``gradient_pass`` and change the point from which each axis starts. Every cell is a process of
its own. Prints one Markdown table an axis. ``temp`` is what the compiled program allocates beside weights, batch and
gradient; ``logits`` what the logits of all sampled tokens alone would take; ``GFLOP`` the work as ``work`` counts it.
Below stands for each column the exponent between the first and the last row, ``log(cost ratio) / log(size ratio)``, and
what it should be:

- time: the counted work's, whose attention is quadratic, so that ``s / TFLOP`` is flat;
- temp: that of the tokens (each prefix once), flat in vocabulary, and in depth at most 1, as inputs of layers are kept;
  what grows with the vocabulary is the head's gradient and one chunk's logits, however many tokens there are;
- compile time: flat everywhere.
"""

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.benchmarks import shapes, train_step
from experiments.benchmarks.compare import BUSY, measure

START = {"prompts": 1, "group": 4, "prompt-len": 257, "gen": 255, "warmup": 1, "iters": 2}
"""A small model, prefix and member of 256 tokens."""


class Axis(NamedTuple):
    """What varies."""

    flags: Callable[[int], tuple[str, int]]
    """``size -> (flag, value)``."""
    sizes: tuple[int, ...]
    temp_should_be: float | None
    """Exponent of what the program allocates; None is that of the tokens."""
    smallest: int = 1


AXES: Mapping[str, Axis] = {
    "group": Axis(lambda size: ("--group", size), (1, 2, 4, 8, 16), None),
    # A prompt's last token is its members' first, so a member of one token has none that was sampled.
    "prefix": Axis(lambda size: ("--prompt-len", size + 1), (256, 512, 1024, 2048, 4096, 8192), None),
    "member": Axis(lambda size: ("--gen", size - 1), (256, 512, 1024, 2048, 4096), None, smallest=2),
    "vocab": Axis(lambda size: ("--vocab", size), (8192, 32_000, 64_000, 152_000), 0.0, smallest=2),
    "depth": Axis(lambda size: ("--layers", size), (4, 8, 16, 32), 1.0),
}

COLUMNS = ("GFLOP", "s", "s / TFLOP", "temp, MB", "logits, MB", "peak, MB", "trace, s", "compile, s")


def tokens(line: Mapping[str, Any]) -> int:
    """Of all sequences, each prefix once."""
    return line["prompts"] * (line["prompt_len"] - 1 + line["group"] * (line["gen"] + 1))


def costs(line: Mapping[str, Any]) -> tuple[float, ...]:
    """In the order of ``COLUMNS``."""
    logits = 4 * line["prompts"] * line["group"] * line["gen"] * line["vocab"]
    return (
        line["flops"] / 1e9,
        line["gradient_s"],
        line["gradient_s"] / line["flops"] * 1e12,
        line["temp_mb"],
        logits / 2**20,
        line["max_rss_mb"],
        line["trace_s"],
        line["compile_s"],
    )


def exponent(sizes: tuple[float, float], cost: tuple[float, float]) -> float:
    """``e`` of ``cost ~ size^e`` through two points; NaN where a cost was too small to be seen."""
    if min(cost) <= 0:
        return math.nan
    return math.log(cost[1] / cost[0]) / math.log(sizes[1] / sizes[0])


def table(name: str, cells: Mapping[int, Mapping[str, Any] | RuntimeError]) -> list[str]:
    """Rows of Markdown: the cells, the exponents of those that did not fail, what those should be."""
    rows = [f"| {name} | " + " | ".join(COLUMNS) + " | |", "| --- " * (len(COLUMNS) + 2) + "|"]
    lines: dict[int, Mapping[str, Any]] = {}
    for size, line in cells.items():
        if isinstance(line, RuntimeError):
            rows.append(f"| {size:,} |" + " |" * len(COLUMNS) + " failed |")
            continue
        lines[size] = line
        busy = "busy" if line["other_procs_cores"] > BUSY else ""
        rows.append(f"| {size:,} | " + " | ".join(f"{cost:.4g}" for cost in costs(line)) + f" | {busy} |")
    if len(lines) > 1:
        sizes = min(lines), max(lines)
        first, last = (lines[size] for size in sizes)
        found = [exponent(sizes, pair) for pair in zip(costs(first), costs(last))]
        should_be: list[float | None] = [None, found[0], 0.0, AXES[name].temp_should_be, None, None, 0.0, 0.0]
        if should_be[3] is None:
            should_be[3] = exponent(sizes, (tokens(first), tokens(last)))
        rows.append("| exponent | " + " | ".join(f"{value:.2f}" for value in found) + " | |")
        shown = ("" if value is None else f"{value:.2f}" for value in should_be)
        rows.append("| should be | " + " | ".join(shown) + " | |")
    return rows


Cells = dict[str, Mapping[str, Any] | RuntimeError]


def measured(cells: Cells, given: Sequence[str]) -> Mapping[str, Any] | RuntimeError:
    """The cell's line, or why there is none; several axes share that from which they start, which is measured once."""
    cell = str(shapes.with_flags(train_step.add_flags(shapes.arguments(None)), given))
    if cell not in cells:
        try:
            cells[cell] = measure([sys.executable, "-m", "experiments.benchmarks.gradient_pass"], given)
        except RuntimeError as error:  # of one that takes more memory than there is, say: the others are measured
            cells[cell] = error
            print(error, file=sys.stderr, flush=True)
    return cells[cell]


def sizes_given(given: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Read ``AXIS=SIZE,SIZE``; raises ValueError for anything else, sizes that do not grow, an axis given twice."""
    sizes = {}
    for text in given:
        name, _, values = text.partition("=")
        if name not in AXES or not all(value.isdecimal() for value in values.split(",")):
            raise ValueError(f"--sizes {text!r}: expected one of {', '.join(AXES)}, then = and sizes with commas")
        if name in sizes:
            raise ValueError(f"--sizes {text!r}: {name} has sizes already; give them once")
        sizes[name] = tuple(int(value) for value in values.split(","))
        if sizes[name][0] < AXES[name].smallest or any(
            small >= large for small, large in zip(sizes[name], sizes[name][1:])
        ):
            raise ValueError(f"--sizes {text!r}: expected sizes of {AXES[name].smallest} or more that grow")
    return sizes


def check_chosen(axes: Sequence[str], sizes: Mapping[str, tuple[int, ...]], more: Sequence[str]) -> None:
    """Raise ValueError where something given would be ignored: sizes of no chosen axis, or a flag that one sets."""
    for name in sizes:
        if name not in axes:
            raise ValueError(f"--sizes {name}=...: {name} is not measured; add it to --axis ({', '.join(axes)})")
    given = {text.partition("=")[0] for text in more}
    for name in axes:
        flag, _ = AXES[name].flags(AXES[name].smallest)
        if flag in given:
            raise ValueError(f"{flag} is what axis {name} varies; give --sizes {name}=SIZE,SIZE, or other axes")


def main() -> None:
    """Measure every cell of the chosen axes, print their tables; exits 1 if any failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--axis", nargs="+", choices=list(AXES), default=list(AXES))
    parser.add_argument("--sizes", action="append", default=[], metavar="AXIS=SIZE,SIZE")
    flags, more = parser.parse_known_args()
    try:
        given = sizes_given(flags.sizes)
        check_chosen(flags.axis, given, more)
    except ValueError as error:
        parser.error(str(error))
    start = [text for name, value in START.items() for text in (f"--{name}", str(value))] + more
    cells: Cells = {}
    for name in flags.axis:
        axis, lines = AXES[name], {}
        for size in given.get(name, axis.sizes):
            lines[size] = measured(cells, [*start, *map(str, axis.flags(size))])
        print("\n".join(table(name, lines)) + "\n", flush=True)
    if any(isinstance(cell, RuntimeError) for cell in cells.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
