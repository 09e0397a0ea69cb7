"""The two datasets of RC-GRPO's fine-tuning, from the official tasks: experts, and failures beside them.

    python -m experiments.rc_grpo.collect --output=DIR [--asking=merged|separate] [--calls=python|tagged] [--seed=0]
    python -m experiments.rc_grpo.collect --output=DIR --config=FILE.py:variant --workdir=RUN [--step=N] [--samples=5]

Writes ``demonstrations/rctp`` (experts with the high reward, as many failures with the low one) and
``demonstrations/sft`` (the experts alone) into DIR, each with the splits ``train`` and ``test``, which share no number.

The first form needs no model: failures are written by rote from the ground truth. The second takes failures from
rollouts of a run's policy (by default its newest weights; ``--step=0`` are those before RL), in its environment, with
the limits of its evaluation, and fills up with scripted ones where there are too few. All rows are played before they
are written, and say where they come from.
"""

import contextlib
import dataclasses
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from absl import app, flags, logging

from rlagents import imitation_rows
from rlagents.command_line import CONFIG, WORKDIR, check_words, parse_flags, read_options
from rlagents.compilation import programs_kept_by
from rlagents.data.demonstrations import DemonstrationRow, check_unwritten, write_demonstrations
from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_split import Split, official_category, split_by_number
from rlagents.environments.bfcl_tasks import CATEGORIES, official_tasks
from rlagents.environments.bfcl_turns import MergedTurns, SeparateTurns
from rlagents.evaluate import OUTPUT, STEP, trained_params
from rlagents.experiment import Config, Experiment
from rlagents.facts import Task
from rlagents.machinery import assemble
from rlagents.rollouts.trajectory import Trajectory
from rlagents.tools.call_formats import PythonCalls, TaggedJsonCalls

SETS = ("rctp", "sft")

SEED = flags.DEFINE_integer("seed", 0, "Of the split, of scripted failures, and of which failures are taken.")
TASKS = flags.DEFINE_list("categories", list(CATEGORIES), "Official categories to take tasks of.")
ASKING = {"merged": MergedTurns(), "separate": SeparateTurns()}
ASKED = flags.DEFINE_enum("asking", "merged", list(ASKING), "All requests in one message, or one after the other.")
CALLS = {"python": PythonCalls(), "tagged": TaggedJsonCalls()}
CALLED = flags.DEFINE_enum("calls", "python", list(CALLS), "How calls are written.")
SAMPLES = flags.DEFINE_integer("samples", 5, "Rollouts of each task, where a policy is to fail.", lower_bound=1)


def main(argv: list[str]) -> None:
    """Read the command line, collect, write, tell. Exits 2 for what the user has to mend."""
    try:
        check_words(argv)
        if (CONFIG.value is None) != (WORKDIR.value is None):
            raise ValueError("give both --config and --workdir for failures of a policy, or none for scripted ones.")
        output = str(OUTPUT.value)
        for name in SETS:
            check_unwritten(output, name)
        split = split_by_number([task for name in TASKS.value for task in official_tasks(name)], seed=SEED.value)
        if CONFIG.value is None:
            groups: Sequence[Sequence[Trajectory]] = ()
            environment = BfclEnvironment(turns=ASKING[ASKED.value], format=CALLS[CALLED.value])
        else:
            environment, groups = rollouts_of_a_run(split)
        sets = collected(environment, split, groups, seed=SEED.value)
        for name, splits in sets.items():
            folder = write_demonstrations(output, name, splits)
            for side, rows in splits.items():
                print(f"{folder} {side}: {described(rows)}", flush=True)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        print(f"experiments.rc_grpo.collect: {error}", file=sys.stderr)
        sys.exit(2)


def collected(
    environment: BfclEnvironment, split: Split, groups: Sequence[Sequence[Trajectory]], *, seed: int
) -> dict[str, dict[str, list[DemonstrationRow]]]:
    """Dataset -> split -> rows.

    ``groups`` are rollouts of a policy in tasks of either side; what they do not fail often enough is filled up with
    scripted failures. Raises ValueError for a ground truth that does not replay.
    """
    rctp: dict[str, list[DemonstrationRow]] = {}
    sft: dict[str, list[DemonstrationRow]] = {}
    tasks = {task.id: task for task in (*split.train, *split.test)}
    failed = imitation_rows.policy_rows(groups, environment, tasks, official_category)
    for side, of_side in (("train", split.train), ("test", split.test)):
        experts = imitation_rows.expert_rows(environment, of_side, official_category)
        scripted = imitation_rows.scripted_rows(environment, of_side, official_category, seed=seed)
        failures = imitation_rows.balanced(experts, failed, seed=seed, fill=scripted)
        rctp[side] = imitation_rows.rctp_rows(experts, failures, seed=seed)
        sft[side] = imitation_rows.sft_rows(experts, seed=seed)
    return dict(zip(SETS, (rctp, sft), strict=True))


def rollouts_of_a_run(split: Split) -> tuple[BfclEnvironment, Sequence[Sequence[Trajectory]]]:
    """A run's environment, and rollouts of its policy in the tasks of both sides."""
    config, experiment, workdir = read_options(trains=False)
    if not isinstance(experiment.environment, BfclEnvironment):
        raise ValueError(
            f"the environment of build(config) is a {type(experiment.environment).__name__}; expected BFCL."
        )
    return experiment.environment, sampled(config, experiment, workdir, (*split.train, *split.test))


def sampled(
    config: Config, experiment: Experiment, workdir: Path, tasks: Sequence[Task]
) -> Sequence[Sequence[Trajectory]]:
    """Rollouts as an evaluation makes them, of these tasks instead of the held-out ones."""
    with config.unlocked():
        config.evaluation.num_tasks, config.evaluation.samples_per_task = len(tasks), SAMPLES.value
    asked = dataclasses.replace(experiment, held_out=tasks, category=official_category)
    machinery = assemble(config, asked, trains=False)
    with contextlib.closing(machinery), programs_kept_by(config, workdir):
        params, step = trained_params(machinery, workdir, STEP.value)
        evaluation = machinery.evaluate(machinery.make_sampler(params, version=step))
    print(f"rollouts after {step} steps of RL: {evaluation}", flush=True)
    return evaluation.groups


def described(rows: Sequence[DemonstrationRow]) -> str:
    """How many, of whom, of which categories, and why they fail."""
    counts: Mapping[str, Counter[str]] = {
        "source": Counter(row.source for row in rows),
        "category": Counter(row.category for row in rows),
        "cause": Counter(row.cause for row in rows if row.cause),
    }
    parts = [
        ", ".join(f"{name} {count}" for name, count in sorted(found.items())) for found in counts.values() if found
    ]
    return f"{len(rows)} rows ({'; '.join(parts)})"


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.mark_flags_as_required(["output"])
    app.run(main, flags_parser=parse_flags)
