"""Folders of finished runs as a grid leaves them, with numbers that a test gives."""

import json

from experiments.rc_grpo.evaluate_goals import GOALS
from rlagents.intervals import wilson
from rlagents.metrics import MetricsWriter

STEP = {
    "reward": 0.5,
    "entropy": 0.1,
    "zero_variance_groups": 0.5,
    "reward_std": 0.2,
    "advantage_spread": 1.0,
    "rollout/trajectories": 160.0,
}


def write_run(directory, seed, cell, successes, steps=(), tasks=100):
    """``successes``: goal -> share, or one for all; ``steps``: what differs from ``STEP``, step by step."""
    shares = successes if isinstance(successes, dict) else dict.fromkeys(GOALS, successes)
    run = directory / f"seed-{seed}" / cell
    run.mkdir(parents=True)
    goals = {
        goal: {"all": {"success": {"mean": share, "interval": wilson(share, tasks)}, "tasks": tasks}}
        for goal, share in shares.items()
    }
    (run / "goals.json").write_text(json.dumps(goals))
    if steps:
        writer = MetricsWriter(run / "metrics.jsonl")
        for number, step in enumerate(steps):
            writer.write(number, STEP | step)
        writer.close()
