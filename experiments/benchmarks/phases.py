"""Median seconds of a training step by phase, of two or more runs side by side, read from their ``metrics.jsonl``.

    python -m experiments.benchmarks.phases before=runs/smollm2-before after=runs/smollm2-after --skip 1

A phase counts in the steps that entered it; a run's first steps compile, so ``--skip`` leaves them out. The last column
is the last run over the first. Tokens stand below: times compare where those agree. Prints a Markdown table. What a
killed run left of its last line is left out, with a warning.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlagents.metrics import files_of

SECONDS = "seconds/"
TOKENS = ("tokens_sampled", "tokens_total")


def read_steps(workdir: Path, *, skip: int) -> list[dict[str, float]]:
    """Metrics of a run's steps but the first ``skip``.

    Raises ValueError, naming the file and line, where none is left, where a line is damaged or no object, and where a
    time or a number of tokens is none.
    """
    path = workdir / "metrics.jsonl"
    if not workdir.is_dir():
        raise ValueError(f"{workdir}: no such folder, expected the workdir of a run")
    files = files_of(path)
    if not files:
        raise ValueError(f"{path}: no such file, expected the metrics of a run of rlagents.train")
    lines = [line for file in files for line in read_lines(file)]
    steps = [line for line in lines if any(name.startswith(SECONDS) for name in line)]
    if len(steps) <= skip:
        raise ValueError(f"{path}: found {len(steps)} steps with seconds by phase, expected more than {skip} to skip")
    return steps[skip:]


def read_lines(path: Path) -> list[dict[str, float]]:
    """Every line's metrics, checked; see ``read_steps``."""
    texts = path.read_text(encoding="utf-8", errors="replace").removesuffix("\n").split("\n")
    lines = []
    for number, text in enumerate(texts, 1):
        try:
            line = json.loads(text)
        except ValueError as error:
            if number == len(texts):
                print(f"{path}, line {number}, the last, is damaged ({error}) and left out", file=sys.stderr)
                continue
            raise ValueError(f"{path}, line {number}: found no JSON ({error}); mend or remove the line") from error
        if not isinstance(line, dict):
            raise ValueError(f"{path}, line {number}: found {text[:40]!r}, expected an object of metrics")
        for name, value in line.items():
            timed = name in ("seconds", *TOKENS) or name.startswith(SECONDS)
            number_found = isinstance(value, int | float) and not isinstance(value, bool)
            if timed and not (number_found and math.isfinite(value) and value >= 0):
                raise ValueError(f"{path}, line {number}: {name} is {value!r}, expected a finite number, 0 or more")
        lines.append(line)
    return lines


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
    if flags.skip < 0:
        parser.error(f"--skip {flags.skip}: expected 0 or more steps")
    runs = {}
    for run in flags.runs:
        name, separator, workdir = run.partition("=")
        if not separator or not workdir or not name.strip():
            parser.error(f"{run!r}: expected NAME=WORKDIR")
        if name in runs:
            parser.error(f"{run!r}: there is a run {name!r} already; give another name")
        try:
            runs[name] = medians(read_steps(Path(workdir), skip=flags.skip))
        except ValueError as error:
            parser.error(str(error))
    print("\n".join(table(runs)))


if __name__ == "__main__":
    main()
