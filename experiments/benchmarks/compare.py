"""Ours and the peers in turn on the same shapes; ratios from one run, and how near each comes to the machine's limit.

    python -m experiments.benchmarks.compare --peer tunix="PYTHON bench_tunix.py" --peer trl="PYTHON bench_trl.py"

A peer is any command that takes the flags of ``shapes.py`` and prints one JSON line with ``rollout_tok_s``,
``train_step_s`` and ``max_rss_mb``. Run it on a machine that does nothing else; a line says where that failed.
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.benchmarks import machine, shapes, train_step

CELLS: Mapping[str, Sequence[str]] = {
    "short": (),
    "short, vocabulary 32,000": ("--vocab", "32000"),
    "agentic": ("--prompts", "4", "--prompt-len", "1024", "--gen", "256", "--train-micro", "1"),
}
BUSY = 0.15
"""Cores kept busy by others, above which a figure does not count."""


def measure(command: Sequence[str], flags: Sequence[str]) -> dict[str, Any]:
    """Run one benchmark; its JSON line. Raises RuntimeError with what it said where it failed."""
    done = subprocess.run([*command, *flags], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{shlex.join([*command, *flags])} exited {done.returncode}: {done.stderr.strip()[-500:]}")
    return json.loads(lines[-1])


def report(
    cell: str, flags: Sequence[str], lines: Mapping[str, Mapping[str, Any]], rates: machine.Machine
) -> list[str]:
    """Rows of a table: each library's figures, and ours over the better peer's."""
    shape = shapes.with_flags(shapes.arguments(None), flags)
    rows = [
        f"| {cell} | {name} | {line['rollout_tok_s']:.0f} | {line['train_step_s']:.2f} | {line['max_rss_mb']} "
        f"| {train_step.matrix_share(shape, line['train_step_s'], rates):.0%} |"
        + (" busy |" if line["other_procs_cores"] > BUSY else " |")
        for name, line in lines.items()
    ]
    peers = [line for name, line in lines.items() if name != "rlagents"]
    if peers:
        ours = lines["rlagents"]
        rows.append(
            f"| {cell} | ratio | {ours['rollout_tok_s'] / max(line['rollout_tok_s'] for line in peers):.2f}x "
            f"| {ours['train_step_s'] / min(line['train_step_s'] for line in peers):.2f}x "
            f"| {ours['max_rss_mb'] / min(line['max_rss_mb'] for line in peers):.2f}x | | |"
        )
    return rows


def main() -> None:
    """Measure every cell, print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--cell", action="append", choices=list(CELLS), help="default: all of them")
    flags, more = parser.parse_known_args()
    commands = {"rlagents": [sys.executable, "-m", "experiments.benchmarks.train_step"]}
    for peer in flags.peer:
        name, separator, command = peer.partition("=")
        if not separator or not command:
            parser.error(f"--peer {peer!r}: expected NAME=COMMAND")
        commands[name] = shlex.split(command)
    rates = machine.measure()
    print(
        f"matrix product {rates.flops_per_second / 1e9:.0f} GFLOP/s, reading {rates.bytes_per_second / 1e9:.1f} GB/s\n"
    )
    print("| shape | | rollout tokens/s | training step, s | peak memory, MB | of the matrix rate | |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for cell in flags.cell or CELLS:
        lines = {name: measure(command, [*CELLS[cell], *more]) for name, command in commands.items()}
        print("\n".join(report(cell, CELLS[cell], lines, rates)), flush=True)


if __name__ == "__main__":
    main()
