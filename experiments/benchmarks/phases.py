"""Median seconds of a training step by phase, of two or more runs side by side, read from their ``metrics.jsonl``.

    python -m experiments.benchmarks.phases before=runs/smollm2-before after=runs/smollm2-after --skip 1

A phase counts in the steps that entered it; a run's first steps compile, so ``--skip`` leaves them out. The last column
is the last run over the first. Tokens stand below: times compare where those agree. Prints a Markdown table.
"""

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS = "seconds/"
TOKENS = ("tokens_sampled", "tokens_total")


def read_steps(workdir: Path, *, skip: int) -> list[dict[str, float]]:
    """Metrics of a run's steps but the first ``skip``. Raises ValueError where none is left, naming the file."""
    path = workdir / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    steps = [line for line in lines if any(name.startswith(SECONDS) for name in line)]
    if len(steps) <= skip:
        raise ValueError(f"{path}: found {len(steps)} steps with seconds by phase, expected more than {skip} to skip")
    return steps[skip:]


def medians(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of the whole step, of each phase, and of tokens, each over the steps that have it."""
    names = dict.fromkeys(name for step in steps for name in step)
    wanted = ["seconds", *(name for name in names if name.startswith(SECONDS)), *TOKENS]
    held = {name: [step[name] for step in steps if name in step] for name in wanted}
    return {name: statistics.median(values) for name, values in held.items() if values}


def table(runs: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Rows of Markdown, the phase that costs most first; a run without it has a blank."""
    first, last = next(iter(runs.values())), list(runs.values())[-1]
    phases = {name for run in runs.values() for name in run if name.startswith(SECONDS)}
    by_cost = sorted(phases, key=lambda name: -max(run.get(name, 0.0) for run in runs.values()))
    rows = [f"| | {' | '.join(runs)} | ratio |", "| --- " * (len(runs) + 2) + "|"]
    for name in ("seconds", *by_cost, *(name for name in TOKENS if any(name in run for run in runs.values()))):
        values = [run.get(name) for run in runs.values()]
        shown = ("" if value is None else f"{value:.2f}" if name not in TOKENS else f"{value:.0f}" for value in values)
        ratio = f"{last[name] / first[name]:.2f}" if first.get(name) and name in last else ""
        title = "whole step, s" if name == "seconds" else name.removeprefix(SECONDS).replace("_", " ")
        rows.append(f"| {title} | {' | '.join(shown)} | {ratio} |")
    return rows


def main() -> None:
    """Read and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="NAME=WORKDIR")
    parser.add_argument("--skip", type=int, default=1, help="steps of each run that are left out")
    flags = parser.parse_args()
    runs = {}
    for run in flags.runs:
        name, separator, workdir = run.partition("=")
        if not separator or not workdir:
            parser.error(f"{run!r}: expected NAME=WORKDIR")
        try:
            runs[name] = medians(read_steps(Path(workdir), skip=flags.skip))
        except ValueError as error:
            parser.error(str(error))
    print("\n".join(table(runs)))


if __name__ == "__main__":
    main()
