"""Ours and the peers in turn on the same shapes; ratios from one run, and how near each comes to the machine's limit.

    python -m experiments.benchmarks.compare --peer tunix="PYTHON bench_tunix.py" --peer trl="PYTHON bench_trl.py"

A peer is any command that takes the flags of ``shapes.py`` and prints one JSON line with ``rollout_tok_s``,
``train_step_s``, ``max_rss_mb`` and ``other_procs_cores``; what else it says of its shape has to agree with what was
asked. Flags unknown here go to all of them. One that fails has a row that says so and its reason on stderr; the others
go on, and the exit status is 1. Run it on a machine that does nothing else; a line says where that failed.

Of a limit: a step's and a rollout's counted work over the measured rate of matrix products, and the bytes that a
rollout has to read (weights once a token, KV) over that of memory. The last may pass 100 % where the weights stay in a
cache: memory is no limit there. The machine is measured before and after each shape, and its best rates count.
"""

import argparse
import contextlib
import json
import math
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.benchmarks import machine, rollout, shapes, train_step

CELLS: Mapping[str, Sequence[str]] = {
    "short": (),
    "short, vocabulary 32,000": ("--vocab", "32000"),
    "agentic": ("--prompts", "4", "--prompt-len", "1024", "--gen", "256", "--train-micro", "1"),
}
BUSY = 0.15
"""Cores kept busy by others, above which a figure does not count."""

OURS = "rlagents"
HEADER = (
    "| shape | | rollout tokens/s | training step, s | peak memory, MB | step, of the matrix rate "
    "| rollout, of the matrix rate | rollout, of the reading rate | |",
    "| --- " * 9 + "|",
)


def measure(command: Sequence[str], flags: Sequence[str], *, timeout_seconds: float = 3600.0) -> dict[str, Any]:
    """Run one benchmark; its JSON line.

    Raises RuntimeError, in one line with the end of what it said, where it cannot be started, runs too long, fails, or
    prints no JSON line.
    """
    try:
        process = subprocess.Popen(
            [*command, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # A group of its own: what a command started must not run on beside the next one.
            start_new_session=True,
        )
    except OSError as error:
        raise RuntimeError(f"{command[0]!r} cannot be started: {error.strerror}; give a command that can") from error
    try:
        stdout, stderr = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        said = _said(*_end(process))
        raise RuntimeError(
            f"still ran after {timeout_seconds:g} s and was ended; raise --timeout-seconds; {said}"
        ) from None
    finally:
        _end(process)
    said = _said(stdout, stderr)
    if process.returncode:
        raise RuntimeError(f"{shlex.join([*command, *flags])} exited {process.returncode}, expected 0; {said}")
    lines = [line for line in stdout.splitlines() if line.startswith("{")]
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        raise RuntimeError(f"{shlex.join([*command, *flags])} printed no line of JSON; {said}") from None


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Kill what is left of the group; what it had printed, or nothing where a process that left the group holds on."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=5)
    except (subprocess.TimeoutExpired, ValueError):
        return "", ""


def _said(stdout: str, stderr: str) -> str:
    ends = (("stdout", stdout), ("stderr", stderr))
    return "; ".join(f"{name} ended {' '.join(text.split())[-300:]!r}" for name, text in ends)


def parse_shape(flags: Sequence[str]) -> argparse.Namespace:
    """What the flags ask for, ours included."""
    return shapes.with_flags(train_step.add_flags(rollout.add_flags(shapes.arguments(None))), flags)


def check(line: Mapping[str, Any], shape: argparse.Namespace) -> None:
    """Raise ValueError where a figure is missing or none, or where the line is of another shape than was asked."""
    for name in ("rollout_tok_s", "train_step_s", "max_rss_mb", "other_procs_cores"):
        value = line.get(name)
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if not math.isfinite(number) or (number <= 0 and name != "other_procs_cores"):
            found = f"{name} is {value!r}" if name in line else f"no {name}"
            raise ValueError(f"found {found}, expected a finite number above 0; mend what prints the line")
    # How often it is measured is no shape; 0 may be said by what it stands for.
    asked = {**vars(shape), "train_micro": shape.train_micro or shape.prompts}
    asked["head_dim"] = shape.head_dim or shape.d // shape.heads
    meant = {"train_micro": line.get("prompts", shape.prompts), "head_dim": asked["head_dim"]}
    for name in vars(shapes.arguments(None).parse_args([])).keys() & line.keys() - {"warmup", "iters"}:
        if (line[name] or meant.get(name, line[name])) != asked[name]:
            raise ValueError(f"measured {name} {line[name]!r}, but {asked[name]!r} was asked; mend its flags")


def row(cell: str, name: str, line: Mapping[str, Any], shape: argparse.Namespace, rates: machine.Machine) -> str:
    """Of the table. Raises ValueError where more work was done than the machine can do."""
    step = train_step.matrix_share(shape, line["train_step_s"], rates)
    rollout_seconds = shape.prompts * shape.group * shape.gen / line["rollout_tok_s"]
    arithmetic, reading = rollout.limit_shares(shape, rollout_seconds, rates)
    for figure, share in (("train_step_s", step), ("rollout_tok_s", arithmetic)):
        if share > 1:
            raise ValueError(
                f"{figure} {line[figure]} is {share:.0%} of the float32 matrix rate, expected 100% at most; the figure "
                "is wrong, or not float32, or the machine was busy while its rate was measured: run it again"
            )
    return (
        f"| {cell} | {name} | {line['rollout_tok_s']:.0f} | {line['train_step_s']:.2f} | {line['max_rss_mb']:.0f} "
        f"| {step:.0%} | {arithmetic:.0%} | {reading:.0%} |" + (" busy |" if line["other_procs_cores"] > BUSY else " |")
    )


def report(
    cell: str, flags: Sequence[str], lines: Mapping[str, Mapping[str, Any] | RuntimeError], rates: machine.Machine
) -> tuple[list[str], dict[str, str]]:
    """Rows of a table, each library's figures and ours over the better peer's; and by name why some failed."""
    shape, rows, failed = parse_shape(flags), [], {}
    good: dict[str, Mapping[str, Any]] = {}
    for name, line in lines.items():
        try:
            if isinstance(line, RuntimeError):
                raise line
            check(line, shape)
            rows.append(row(cell, name, line, shape, rates))
            good[name] = line
        except (RuntimeError, ValueError) as error:
            rows.append(f"| {cell} | {name} | failed | | | | | | |")
            failed[name] = str(error)
    peers = [line for name, line in good.items() if name != OURS]
    if peers and OURS in good:
        ours = good[OURS]
        notes = ["busy"] if any(line["other_procs_cores"] > BUSY for line in good.values()) else []
        notes += [f"without {name}" for name in failed]
        rows.append(
            f"| {cell} | ratio | {ours['rollout_tok_s'] / max(line['rollout_tok_s'] for line in peers):.2f}x "
            f"| {ours['train_step_s'] / min(line['train_step_s'] for line in peers):.2f}x "
            f"| {ours['max_rss_mb'] / min(line['max_rss_mb'] for line in peers):.2f}x | | | |"
            + (f" {', '.join(notes)} |" if notes else " |")
        )
    return rows, failed


def read_peers(given: Sequence[str]) -> dict[str, list[str]]:
    """Read ``NAME=COMMAND``; raises ValueError for anything else, and for a name that is taken."""
    commands: dict[str, list[str]] = {}
    for peer in given:
        name, _, text = peer.partition("=")
        try:
            command = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"--peer {peer!r}: {error}; close what is quoted") from error
        if not name.strip() or "|" in name or not command:
            raise ValueError(f"--peer {peer!r}: expected NAME=COMMAND, and no | in the name")
        if name in (OURS, "ratio", *commands):
            raise ValueError(f"--peer {peer!r}: the name {name!r} is taken; give another")
        commands[name] = command
    return commands


def try_measure(command: Sequence[str], flags: Sequence[str], timeout_seconds: float) -> dict[str, Any] | RuntimeError:
    """The line, or why there is none: the others are measured all the same."""
    try:
        return measure(command, flags, timeout_seconds=timeout_seconds)
    except RuntimeError as error:
        return error


def check_flags(cells: Sequence[str], more: Sequence[str]) -> None:
    """Raise ValueError for a flag that a cell is named after: its row would be of another shape than it says."""
    given = {text.partition("=")[0] for text in more}
    for cell in cells:
        for flag in given.intersection(CELLS[cell]):
            raise ValueError(f"{flag} is what the cell {cell!r} sets; leave it out, or name other cells with --cell")


def machine_rates() -> machine.Machine:
    """Measured in a process of its own: what this one holds counts as memory of those that it starts."""
    return machine.Machine(**measure([sys.executable, "-m", "experiments.benchmarks.machine"], []))


def main() -> None:
    """Measure every cell, print a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--cell", action="append", choices=list(CELLS), help="default: all of them")
    parser.add_argument("--timeout-seconds", type=shapes.positive, default=3600.0, help="of one benchmark's run")
    flags, more = parser.parse_known_args()
    try:
        commands = {OURS: [sys.executable, "-m", "experiments.benchmarks.train_step"], **read_peers(flags.peer)}
        check_flags(flags.cell or list(CELLS), more)
    except ValueError as error:
        parser.error(str(error))
    cells = {cell: [*CELLS[cell], *more] for cell in flags.cell or CELLS}
    for given in cells.values():
        parse_shape(given)
    rates, any_failed = machine_rates(), False
    print("\n".join(HEADER), flush=True)
    for cell, given in cells.items():
        lines = {name: try_measure(command, given, flags.timeout_seconds) for name, command in commands.items()}
        rates = rates.at_best(machine_rates())
        rows, failed = report(cell, given, lines, rates)
        print("\n".join(rows), flush=True)
        for name, reason in failed.items():
            print(f"{cell}, {name}: {reason}", file=sys.stderr, flush=True)
        any_failed = any_failed or bool(failed)
    matrix, reading, copying = (rate / 1e9 for rate in rates)
    print(f"\nmatrix product {matrix:.0f} GFLOP/s, reading {reading:.1f} GB/s, copying {copying:.1f} GB/s")
    if any_failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
