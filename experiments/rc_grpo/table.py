"""The paper's table from the runs of a grid, beside the paper's numbers, with what became of each claim.

    python -m experiments.rc_grpo.table DIR

Writes into DIR: ``table.md``, ``table.csv`` (a line a run), ``table.png``, and for each sweep that was run the same
under its name. Runs that are not finished are left out, and counted.
"""

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from experiments.rc_grpo.cells import GRID, OURS, PAPER, SWEEPS, Cell
from experiments.rc_grpo.claims import claims
from experiments.rc_grpo.evaluate_goals import GOALS
from experiments.rc_grpo.over_seeds import over_seeds
from experiments.rc_grpo.results import Result, results_of
from rlagents.durable import write_durably

Results = Mapping[str, Sequence[Result]]

COLUMNS = ("run", "n", "success", "asked for", *(f"under {goal}" for goal in GOALS), "high - low")
AT_START = {
    "zero_variance_groups": "zero-variance groups at start",
    "reward_std": "std within groups at start",
    "advantage_spread": "advantage spread at start",
    "entropy": "entropy at start",
}


def main(argv: Sequence[str]) -> None:
    """Read the runs, write tables and plots, print the grid's. Exits with 2 where there is nothing to tell."""
    directory = Path(argv[0]) if len(argv) == 1 else None
    if directory is None or not directory.is_dir():
        print("usage: python -m experiments.rc_grpo.table DIR, where DIR is that of a grid", file=sys.stderr)
        sys.exit(2)
    try:
        written = [
            name for name, cells in {"table": GRID, **SWEEPS}.items() if _write(directory, name, cells, name == "table")
        ]
    except ValueError as error:
        print(f"experiments.rc_grpo.table: {error}", file=sys.stderr)
        sys.exit(2)
    if not written:
        print(f"experiments.rc_grpo.table: {directory} holds no finished run", file=sys.stderr)
        sys.exit(2)
    print((directory / f"{written[0]}.md").read_text(encoding="utf-8"))
    print(f"wrote {', '.join(f'{name}.md, {name}.csv, {name}.png' for name in written)} in {directory}")


def _write(directory: Path, name: str, cells: Sequence[Cell], whole: bool) -> bool:
    """Write what there is of the cells; False where that is nothing, or of a sweep nothing but the grid's own cell."""
    results = {cell.name: found for cell in cells if (found := results_of(directory, cell))}
    if not results.keys() - (set() if whole else {OURS.name}):
        return False
    asked = {cell.name: cell.asked for cell in cells}
    text = markdown(cells, results)
    if whole:
        text += "\n" + verdicts(results, asked)
    write_durably(directory / f"{name}.md", text.encode())
    write_durably(directory / f"{name}.csv", lines(cells, results).encode())
    draw(directory / f"{name}.png", cells, results)
    return True


def markdown(cells: Sequence[Cell], results: Results) -> str:
    """A row a cell, in the paper's order: means over seeds with 95% intervals, in percent, and the paper's numbers."""
    papers = ("paper: Qwen2.5-7B", "LLaMA-3.1-8B") if any(cell.name in PAPER for cell in cells[1:]) else ()
    rows = [[*COLUMNS, *AT_START.values(), *papers]]
    for cell in cells:
        runs = results.get(cell.name, ())
        if not runs:
            rows.append([cell.title, "0", *["-"] * (len(rows[0]) - 2)])
            continue
        by_goal = [_percent([run.success(goal) for run in runs]) for goal in GOALS]
        starts = [[value for run in runs if (value := run.at_start(metric)) is not None] for metric in AT_START]
        rows.append(
            [
                cell.title,
                str(len(runs)),
                f"**{_percent([run.success(cell.asked) for run in runs])}**",
                cell.asked,
                *by_goal,
                _percent([run.gap for run in runs]),
                *(str(over_seeds(values)) if values else "-" for values in starts),
                *([f"{number:.2f}" for number in PAPER.get(cell.name, ())] or ["-"] * 2 if papers else []),
            ]
        )
    ruled = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    tasks = next(run for runs in results.values() for run in runs).goals["none"]["all"]["tasks"]
    note = f"Success in percent of {tasks} held-out tasks: mean over n seeds ± half of Student's 95% interval."
    return "\n".join(f"| {' | '.join(row)} |" for row in ruled) + f"\n\n{note}\n"


def verdicts(results: Results, asked: Mapping[str, str]) -> str:
    """A row a claim."""
    rows = [f"| {claim.text} | {claim.verdict.value} | {claim.evidence} |" for claim in claims(results, asked)]
    return "\n".join(["| claim | | numbers |", "|---|---|---|", *rows]) + "\n"


def lines(cells: Sequence[Cell], results: Results) -> str:
    """CSV, a line a run: success under each goal with Wilson's 95% interval by the tasks of the run, and its start."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    by_goal = [f"{name}_{goal}" for goal in GOALS for name in ("success", "low", "high")]
    writer.writerow(["cell", "seed", "asked", "tasks", *by_goal, *AT_START, "entropy_reward_correlation"])
    for cell in cells:
        for run in results.get(cell.name, ()):
            shares = [number for goal in GOALS for number in (run.success(goal), *run.wilson(goal))]
            rest = [*(run.at_start(metric) for metric in AT_START), run.entropy_with_reward]
            numbers = ["" if number is None else f"{number:.6g}" for number in (*shares, *rest)]
            writer.writerow([cell.name, run.seed, cell.asked, run.goals["none"]["all"]["tasks"], *numbers])
    return out.getvalue()


def draw(path: Path, cells: Sequence[Cell], results: Results) -> None:
    """Bars of success with intervals over seeds, a dot a run; below, reward by step as a mean over seeds."""
    shown = [cell for cell in cells if cell.name in results]
    figure, (bars, curves) = plt.subplots(2, 1, figsize=(8, 8), layout="constrained")
    for place, cell in enumerate(shown):
        values = [100 * run.success(cell.asked) for run in results[cell.name]]
        mean = over_seeds(values)
        error = None if np.isnan(mean.half_width) else mean.half_width
        bars.bar(place, mean.mean, yerr=error, capsize=4, color="#9db8d9")
        bars.plot([place] * len(values), values, ".", color="#1f4e8c")
        steps = [[step["reward"] for step in run.steps] for run in results[cell.name] if run.steps]
        if steps:
            shortest = min(map(len, steps))
            curves.plot(np.mean([rewards[:shortest] for rewards in steps], axis=0), label=cell.title)
    bars.set(ylabel="held-out success, %", ylim=(0, 100))
    bars.set_xticks(range(len(shown)), [cell.title for cell in shown], rotation=30, ha="right")
    curves.set(xlabel="step of RL", ylabel="mean reward of rollouts", ylim=(0, 1))
    if curves.lines:
        curves.legend(fontsize="small")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _percent(shares: Sequence[float]) -> str:
    found = over_seeds([100 * share for share in shares])
    return f"{found.mean:.1f}" if np.isnan(found.half_width) else f"{found.mean:.1f} ± {found.half_width:.1f}"


if __name__ == "__main__":
    main(sys.argv[1:])
