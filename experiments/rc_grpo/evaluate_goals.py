"""Held-out success of a run's newest weights when no reward, a high one and a low one is asked for, on the same tasks.

    python -m experiments.rc_grpo.evaluate_goals --config=DIR/config.json --workdir=DIR [--config.key=value ...]

Writes ``DIR/goals.json``: goal -> what ``rlagents.evaluate`` says of it, with Wilson's 95% intervals.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from absl import app, flags, logging

from rlagents.command_line import check_words, parse_flags, read_options
from rlagents.compilation import programs_kept_by
from rlagents.durable import WriteError, write_durably
from rlagents.evaluate import trained_params
from rlagents.machinery import Machinery, assemble
from rlagents.rollouts.conditions import HIGH, LOW, MemberMessages, fixed, reward_goal, same_for_all

FILE = "goals.json"

GOALS: dict[str, MemberMessages] = {
    "none": same_for_all,
    "high": reward_goal(fixed(HIGH)),
    "low": reward_goal(fixed(LOW)),
}


def main(argv: list[str]) -> None:
    """Read the command line, evaluate, write. Exits 2 for what the user has to mend."""
    try:
        check_words(argv)
        config, experiment, workdir = read_options(trains=False)
        machinery = assemble(config, experiment, trains=False)
        try:
            with programs_kept_by(config, workdir):
                found = under_each_goal(machinery, workdir)
        finally:
            machinery.close()
        # Written last: whoever sees it knows that the run is finished and measured.
        write_durably(workdir / FILE, (json.dumps(found, indent=2) + "\n").encode())
    except (ValueError, FileNotFoundError, PermissionError, ModuleNotFoundError, WriteError) as error:
        print(f"experiments.rc_grpo.evaluate_goals: {error}", file=sys.stderr)
        sys.exit(2)


def under_each_goal(machinery: Machinery, workdir: Path) -> dict[str, Any]:
    """Goal -> ``Evaluation.document()``; prints a line each. All goals are met with the same random numbers."""
    params, step = trained_params(machinery, workdir, None)
    sampler, found = machinery.make_sampler(params, version=step), {}
    for goal, messages in GOALS.items():
        asked = dataclasses.replace(machinery.experiment, evaluation_messages=messages)
        evaluation = dataclasses.replace(machinery, experiment=asked).evaluate(sampler)
        print(f"asked for {goal:4} reward: {evaluation}", flush=True)
        found[goal] = evaluation.document()
    return found


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.mark_flags_as_required(["config", "workdir"])
    app.run(main, flags_parser=parse_flags)
