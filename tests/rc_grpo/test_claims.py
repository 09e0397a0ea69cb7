"""Verdicts follow from the numbers: each claim is made to hold, to fail and to be open."""

import itertools
import math

import numpy as np
import pytest

from experiments.rc_grpo.cells import GRID
from experiments.rc_grpo.claims import Verdict, all_of, claims, differences, greater, not_greater
from experiments.rc_grpo.over_seeds import OverSeeds, over_seeds
from experiments.rc_grpo.results import (
    below_collapse_bound,
    below_variance_bound,
    below_variance_bound_of_step,
    results_of,
)
from rlagents.conditioning import conditioning
from rlagents.facts import Outcome
from tests.rc_grpo.runs import write_run
from tests.test_conditioning import member

ASKED = {cell.name: cell.asked for cell in GRID}
HOLDS, FAILS, OPEN = Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN


@pytest.mark.parametrize(
    ("mean", "half", "above", "not_above"),
    [
        (0.3, 0.1, HOLDS, FAILS),
        (0.1, 0.3, OPEN, HOLDS),
        (-0.1, 0.3, OPEN, HOLDS),
        (-0.3, 0.1, FAILS, HOLDS),
        (0.0, 0.0, FAILS, HOLDS),
        (0.3, math.nan, OPEN, OPEN),
    ],
)
def test_a_difference_is_judged_by_its_interval(mean, half, above, not_above):
    assert greater(OverSeeds(mean, half, 5)) is above
    assert not_greater(OverSeeds(mean, half, 5)) is not_above


def test_all_of_several():
    assert all_of([HOLDS, HOLDS]) is HOLDS
    assert all_of([HOLDS, OPEN]) is OPEN
    assert all_of([OPEN, FAILS]) is FAILS


def test_differences_are_of_the_seeds_that_both_have():
    assert differences({0: 1.0, 1: 3.0, 2: 9.0}, {1: 1.0, 0: 0.5}) == over_seeds([0.5, 2.0])
    assert differences({0: 1.0}, {1: 1.0}) is None


def grid(directory, means, *, zero_variance, slope=-1.0, noise=0.01):
    """Three seeds of each cell around a mean success, the starts' shares, and entropy against reward."""
    for seed in range(3):
        for number, (cell, mean) in enumerate(means.items()):
            off = noise * list(itertools.permutations((1, -1, 0)))[number][seed]  # no two cells alike
            steps = [
                {"reward": r, "entropy": 1 + slope * r + r * off, "zero_variance_groups": zero_variance.get(cell, 0.5)}
                for r in np.linspace(0.2, 0.8, 5)
            ]
            steps[0]["zero_variance_groups"] += off
            steps[2]["entropy"] += off
            write_run(directory, seed, cell, mean + off, steps if "+" in cell else ())
    results = {cell: results_of(directory, next(known for known in GRID if known.name == cell)) for cell in means}
    return {claim.text: claim for claim in claims(results, ASKED)}


PAPER_LIKE = {"sft+grpo": 0.5, "sft+rc-grpo": 0.48, "rctp+grpo": 0.7, "rctp+rc-grpo": 0.85}


def verdicts(found):
    return [claim.verdict for claim in found.values()]


def test_numbers_like_the_paper_s_bear_it_out(tmp_path):
    found = grid(tmp_path, PAPER_LIKE, zero_variance={"sft+grpo": 0.8, "rctp+rc-grpo": 0.3})
    assert verdicts(found) == [HOLDS] * 6
    assert "over rctp+grpo: difference 0.1" in found["RCTP + RC-GRPO is best"].evidence


def test_the_opposite_bears_out_nothing(tmp_path):
    means = {"sft+grpo": 0.5, "sft+rc-grpo": 0.8, "rctp+grpo": 0.7, "rctp+rc-grpo": 0.6}
    found = grid(tmp_path, means, zero_variance={"sft+grpo": 0.3, "rctp+rc-grpo": 0.5}, slope=1.0)
    assert verdicts(found) == [FAILS] * 6


def test_of_what_cannot_be_told_apart_nothing_is_said(tmp_path):
    found = grid(
        tmp_path,
        dict.fromkeys(PAPER_LIKE, 0.5),
        zero_variance={"sft+grpo": 0.7, "rctp+rc-grpo": 0.7},
        noise=0.05,
    )
    # No better is what cannot be told from equal, too.
    assert verdicts(found)[1:5] == [OPEN, HOLDS, OPEN, OPEN]


def test_without_runs_there_is_no_claim(tmp_path):
    assert claims({}, ASKED) == []
    write_run(tmp_path, 0, "sft+grpo", 0.5, [{"zero_variance_groups": 0.9}])
    found = claims({"sft+grpo": results_of(tmp_path, GRID[5])}, ASKED)
    assert [claim.verdict for claim in found] == [HOLDS]


def test_collapse_is_compared_beyond_sampling_error():
    step = {"peaked_groups": 100.0, "peaked_identical": 0.4, "peaked_identical_bound": 0.5}
    assert below_collapse_bound([step, {}, {"peaked_groups": 0.0}]) == (0, 1)  # 3 x 0.05 below is chance
    assert below_collapse_bound([step | {"peaked_identical": 0.34}]) == (1, 1)
    assert below_collapse_bound([step | {"peaked_identical_bound": 1.0, "peaked_identical": 0.99}]) == (1, 1)


def sampled_step(source, p_high, p_low, *, members=5, prompts=32):
    """What a step writes down whose prompts all have the same two shares of success."""
    groups = []
    for _ in range(prompts):
        conditions = source.integers(0, 2, members)
        chances = np.where(conditions == 1, p_high, p_low)
        rewards = (source.random(members) < chances).astype(float)
        groups.append([member(int(c), r, outcome=Outcome(r)) for c, r in zip(conditions, rewards)])
    return conditioning()(groups) | {"rollout/trajectories": float(members * prompts)}


@pytest.mark.parametrize(("p_high", "p_low"), [(1.0, 0.0), (0.6, 0.1), (0.5, 0.5), (0.05, 0.0)])
def test_variance_of_true_policies_is_never_below_its_bounds(p_high, p_low):
    source = np.random.default_rng(1)
    steps = [sampled_step(source, p_high, p_low) for _ in range(100)]
    compared = sum("mixed_variance" in step for step in steps)
    assert below_variance_bound(steps) == (0, compared)
    assert below_variance_bound_of_step(steps, members=5) == (0, compared)


def test_variance_that_is_too_small_is_seen():
    step = sampled_step(np.random.default_rng(2), 0.9, 0.0)
    less = step | {"mixed_variance": step["mixed_variance_bound"] - 0.01}
    assert below_variance_bound([step, less, {}]) == (1, 2)
    # Members whose rewards agree within a group although the conditions of the step differ in them.
    assert below_variance_bound_of_step([step, step | {"mixed_variance": 0.05}], members=5) == (1, 2)
