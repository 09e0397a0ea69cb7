"""Train a policy: a supervised warm-up on demonstrations, then group-relative RL on its own rollouts.

    python -m rlagents.train --config=FILE.py[:argument] --workdir=DIR [--config.key=value ...]

Writes into DIR: ``config.json``, ``warm_up.jsonl`` and ``metrics.jsonl`` (a line a step), ``evaluations.jsonl``,
``conversations/`` (one group a step), ``warm_up/`` and ``checkpoints/``. Started again with the same config, it goes on
after the newest checkpoint; with another config, it refuses. Compiled programs are kept in ``compilation_cache`` (a
folder, relative to DIR; empty for none), so that the next run of the same shapes starts at once.
"""

import contextlib
import sys
import time
from pathlib import Path

from absl import app, flags, logging

from rlagents.alarms import AlarmError
from rlagents.checkpoints import CheckpointError
from rlagents.command_line import parse_flags, read_options
from rlagents.compilation import Compilations, compilers_memory_returned, described, planned_programs, programs_kept_by
from rlagents.learner import NonFiniteError
from rlagents.machinery import Machinery, assemble
from rlagents.reinforce import reinforce
from rlagents.timing import PhaseTimer
from rlagents.warm_up import warm_up
from rlagents.watchdog import Watchdog
from rlagents.workdir import claim_workdir

_START = time.perf_counter()


def main(argv: list[str]) -> None:
    """Read the command line, train, end the tool workers.

    Exits 2 for what the user has to mend, and 3 where learning itself failed: an alarm that stops the run, or updates
    that were not finite.
    """
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments {argv[1:]}; options begin with --")
    with compilers_memory_returned(), contextlib.ExitStack() as stack:
        try:
            config, experiment, workdir = read_options()
            machinery = stack.enter_context(contextlib.closing(assemble(config, experiment)))
            # Last, so that what is refused leaves no folder behind.
            claim_workdir(workdir, config)
            stack.enter_context(programs_kept_by(config, workdir))
        except (ValueError, FileNotFoundError, ModuleNotFoundError) as error:
            print(f"rlagents.train: {error}", file=sys.stderr)
            sys.exit(2)
        try:
            train(machinery, workdir, PhaseTimer(_START))
        except CheckpointError as error:
            print(f"rlagents.train: {error}", file=sys.stderr)
            sys.exit(2)
        except (AlarmError, NonFiniteError) as error:
            print(f"rlagents.train: {error}", file=sys.stderr)
            sys.exit(3)


def train(machinery: Machinery, workdir: Path, timer: PhaseTimer) -> None:
    """Both phases, each from where it stood; says what there is to compile, and in the end what was."""
    planned = planned_programs(machinery.config, max_prefix_tokens=machinery.max_prefix_tokens)
    print(described(planned), flush=True)
    watchdog = Watchdog(timer, workdir, machinery.pool_status, **machinery.config.watchdog)
    with Compilations() as compiled, watchdog.watching():
        with timer.phase("warm-up"):
            params = warm_up(machinery, workdir, timer)
        timer.take()  # No step of the reinforced phase has this on its account.
        reinforce(machinery, workdir, params, timer)
    print(compiled, flush=True)


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.mark_flags_as_required(["config", "workdir"])
    app.run(main, flags_parser=parse_flags)
