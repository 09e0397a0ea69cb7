"""What a run of days would use up, in small: memory, file descriptors, threads and processes over a tiny run's steps.

    python -m tests.endurance [--steps 2000]

prints a line every tenth of the way and, at the end, by how much each grew between the end of the first quarter and the
end of the run. Log files are made to rotate often. Exits 1 if something grew.
"""

import argparse
import os
import resource
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from rlagents.metrics import files_of, read_metrics
from rlagents.step_log import StepLog
from tests import smallest_run

MEGABYTE = 2**20
GROWTH_MEGABYTES = 24.0
"""The allocator's own unrest: within it, no growth. A leak of one batch a step would be far beyond in 2,000 steps."""
LINES_A_FILE = 0.1
"""Megabytes: about 50 lines of metrics."""


@dataclass(frozen=True)
class Use:
    """What this process, and those below it, hold."""

    step: int
    megabytes: float
    descriptors: int
    threads: int
    children: int


def use(step: int) -> Use:
    """Look at ``/proc``."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Use(
        step,
        pages * resource.getpagesize() / MEGABYTE,
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
        len(_below(os.getpid())),
    )


def _below(process: int) -> list[int]:
    children = [
        int(child)
        for task in Path(f"/proc/{process}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return children + [below for child in children for below in _below(child)]


def watched_run(workdir: Path, steps: int) -> list[Use]:
    """Run ``steps`` steps; what was held after each tenth of them."""
    config = smallest_run.get_config()
    config.rl.update({"steps": steps, "over_sample": 1.5, "max_draws": 2, "stop_early": True})
    config.checkpoint.update({"every_steps": max(1, steps // 20), "keep_last": 2})
    config.evaluation.every_steps = max(1, steps // 20)
    config.logging.update({"tensorboard": True, "max_megabytes": LINES_A_FILE})
    config.trajectories.max_megabytes = LINES_A_FILE
    found: list[Use] = []
    put = StepLog.put

    def looked(log, line):
        put(log, line)
        if (line.step + 1) % max(1, steps // 20) == 0:
            found.append(use(line.step + 1))
            print(found[-1], flush=True)

    StepLog.put = looked
    try:
        smallest_run.run(config, workdir)
    finally:
        StepLog.put = put
    return found


def growth(found: list[Use]) -> dict[str, float]:
    """By how much each grew between the first quarter's end and the end: of memory, of the largest in each half.

    Of what is counted, of the smallest: a checkpoint that is being written at a look holds a file open, and is no leak.
    """
    settled = [asdict(one) for one in found[len(found) // 4 :]]
    early, late = settled[: len(settled) // 2], settled[len(settled) // 2 :]

    def grew(name, extreme):
        return extreme(one[name] for one in late) - extreme(one[name] for one in early)

    return {"megabytes": grew("megabytes", max)} | {
        name: grew(name, min) for name in ("descriptors", "threads", "children")
    }


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder:
        workdir = Path(folder) / "run"
        grew = growth(watched_run(workdir, steps))
        files = {path.name: len(files_of(path)) for path in sorted(workdir.glob("*.jsonl")) if path.stem.isidentifier()}
        rows = len(read_metrics(workdir / "metrics.jsonl"))
    print(f"growth from a quarter of the way on: {grew}; files: {files}; {rows} lines of metrics")
    return int(grew.pop("megabytes") > GROWTH_MEGABYTES or any(value > 0 for value in grew.values()) or rows != steps)


if __name__ == "__main__":
    sys.exit(main())
