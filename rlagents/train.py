"""Train a policy: a supervised warm-up on demonstrations, then group-relative RL on its own rollouts.

    python -m rlagents.train --config=FILE.py[:argument] --workdir=DIR [--config.key=value ...]

Writes into DIR: ``config.json``, ``warm_up.jsonl`` and ``metrics.jsonl`` (a line a step), ``evaluations.jsonl``,
``trajectories.jsonl`` (groups of training, token by token), ``held_out.jsonl`` (conversations of evaluations),
``warm_up/`` and ``checkpoints/``. Started again with the same config, it goes on after the newest checkpoint; with
another config, it refuses. SIGTERM and Ctrl-C make it save after the step that it is at, and exit with code 75; the
same command goes on. Compiled programs are kept in ``compilation_cache`` (a folder, relative to DIR; empty for none),
so that the next run of the same shapes starts at once.
"""

import contextlib
import sys
import time
from pathlib import Path
from typing import NoReturn

from absl import app, flags, logging

from rlagents.alarms import AlarmError
from rlagents.checkpoints import CheckpointError
from rlagents.command_line import check_words, parse_flags, read_options
from rlagents.compilation import Compilations, compilers_memory_returned, described, planned_programs, programs_kept_by
from rlagents.durable import of_the_disk
from rlagents.first_weights import check_restore_from, finished
from rlagents.interruption import EXIT_CODE as INTERRUPTED
from rlagents.interruption import Interrupted, Interruption, interruptible
from rlagents.learner import NonFiniteError
from rlagents.machinery import Machinery, assemble
from rlagents.metrics.run_log import check_reachable
from rlagents.problems import ConfigError
from rlagents.reinforce import reinforce
from rlagents.rollouts.faults import NothingSampledError
from rlagents.steady_output import steady_output
from rlagents.timing import PhaseTimer
from rlagents.types import Params
from rlagents.warm_up import warm_up
from rlagents.watchdog import Watchdog
from rlagents.workdir import claimed

LEARNING_FAILED = 3
"""Exit code where an alarm stopped the run, or updates were not finite."""

_START = time.perf_counter()


def main(argv: list[str]) -> None:
    """Read the command line, train, end the tool workers.

    Exits with 0 when all steps are done, or were already; with 2 for what the user has to mend; with 3 where learning
    itself failed: an alarm that stops the run, or updates that were not finite; with 75 where it was asked to stop, and
    has saved.
    """
    with steady_output(), compilers_memory_returned(), contextlib.ExitStack() as stack:
        try:
            check_words(argv)
            config, experiment, workdir = read_options()
            if finished(workdir, config):
                print(f"{workdir} is finished: all its steps are done, nothing is left to do.", flush=True)
                return
            machinery = stack.enter_context(contextlib.closing(assemble(config, experiment)))
            check_restore_from(machinery, workdir)
            check_reachable(**config.logging)
            # Last, so that what is refused leaves no folder behind.
            stack.enter_context(claimed(workdir, config))
            stack.enter_context(programs_kept_by(config, workdir))
        except (ValueError, OSError, ModuleNotFoundError) as error:
            _refuse(error)
        try:
            train(machinery, workdir, PhaseTimer(_START), stack.enter_context(interruptible()))
        except Interrupted as stopped:
            print(f"{stopped}; start again with the same command to go on", flush=True)
            sys.exit(INTERRUPTED)
        except (AlarmError, NonFiniteError) as error:
            print(f"rlagents.train: {error}", file=sys.stderr)
            sys.exit(LEARNING_FAILED)
        except (CheckpointError, ConfigError, NothingSampledError, OSError) as error:
            if isinstance(error, OSError) and not of_the_disk(error):
                raise
            _refuse(error)


def train(machinery: Machinery, workdir: Path, timer: PhaseTimer, interruption: Interruption | None = None) -> None:
    """Both phases, each from where it stood; says what there is to compile, and in the end what was."""
    interruption = interruption or Interruption()
    planned = planned_programs(machinery.config, max_prefix_tokens=machinery.max_prefix_tokens)
    print(described(planned), flush=True)
    watchdog = Watchdog(timer, workdir, machinery.pool.status, **machinery.config.watchdog)

    def before_rl() -> Params:
        with timer.phase("warm-up"):
            params = warm_up(machinery, workdir, timer, interruption)
        timer.take()  # No step of the reinforced phase has this on its account.
        return params

    with Compilations() as compiled, watchdog.watching():
        if machinery.config.rl.steps:
            reinforce(machinery, workdir, before_rl, timer, interruption)
        else:
            before_rl()
    print(compiled, flush=True)


def _refuse(error: Exception) -> NoReturn:
    print(f"rlagents.train: {error}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.mark_flags_as_required(["config", "workdir"])
    app.run(main, flags_parser=parse_flags)
