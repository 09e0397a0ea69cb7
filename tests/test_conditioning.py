"""What conditioning does within groups: against the oracle, and against policies whose true numbers are known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.conditioning import conditioning, identical, restored_variance
from rlagents.facts import Outcome
from rlagents.metrics import names, read_metrics
from rlagents.rollouts.conditions import bernoulli, reward_goal
from rlagents.types import Kind
from tests import smallest_run
from tests.effort import draws
from tests.oracles import conditioning as oracle
from tests.rollouts.test_collate import trajectory


def member(condition, reward, tokens=(7, 8), log_prob=-1.0, **changes):
    """Two tokens were sampled, then a tool answered, whose token has no log-probability that counts."""
    fields = {
        "segments": ((Kind.MODEL, 2), (Kind.TOOL, 1)),
        "condition": condition,
        "outcome": Outcome(reward),
        "token_ids": [*tokens, 9],
        "log_probs": [log_prob / 2, log_prob / 2, -5.0],
    }
    return trajectory(**(fields | changes))


def plain(groups):
    """As the oracle has them."""
    return [[(m.condition, m.outcome.reward, list(m.token_ids), sum(m.log_probs[:2])) for m in g] for g in groups]


MEMBERS = st.builds(
    member,
    st.sampled_from([-1, 0, 1]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([(1, 2), (1, 3)]),
    st.floats(-2.0, 0.0),
)


@settings(max_examples=draws(100), deadline=None)
@given(st.lists(st.lists(MEMBERS, max_size=6), max_size=5))
def test_as_the_oracle_has_it(groups):
    found, wanted = conditioning()(groups), oracle.conditioning(plain(groups))
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12, err_msg=name)


def test_lost_members_count_for_nothing():
    group = [member(1, 1.0), member(1, 1.0), member(0, 0.0), member(0, 0.0)]
    lost = member(0, 0.0, outcome=None, lost="no world")
    assert conditioning()([[*group, lost]]) == conditioning()([group])
    assert conditioning()([[lost, lost]]) == {"mixed_groups": 0, "peaked_groups": 0}


def binary_group(random, size, p, p_high, p_low):
    conditions = (random.random(size) < p).astype(int)
    rewards = random.random(size) < np.where(conditions == 1, p_high, p_low)
    return [member(int(c), float(r)) for c, r in zip(conditions, rewards)]


@pytest.mark.parametrize(("p", "p_high", "p_low"), [(0.5, 0.9, 0.1), (0.3, 0.8, 0.8), (0.5, 1.0, 0.0)])
def test_the_bound_estimates_what_the_proposition_says(p, p_high, p_low):
    """Of groups with two of each, the estimate for the split at hand is p^ (1 - p^) eps^2 on average."""
    random, size = np.random.default_rng(0), 8
    groups = [binary_group(random, size, p, p_high, p_low) for _ in range(4000)]
    sides = [found for group in groups if (found := restored_variance(group, 0, 1)) is not None]
    shares = [sum(m.condition for m in group) / size for group in groups if restored_variance(group, 0, 1) is not None]
    wanted = np.mean([share * (1 - share) for share in shares]) * (p_high - p_low) ** 2
    bounds = np.array([one.bound for one in sides])
    assert abs(bounds.mean() - wanted) < 4 * bounds.std() / math.sqrt(len(bounds)) + 1e-12
    # Never above what is measured, and equal to it where a condition decides the reward.
    assert all(one.bound <= one.measured + 1e-12 for one in sides)
    if (p_high, p_low) == (1.0, 0.0):
        assert all(one.bound == pytest.approx(one.measured) for one in sides)


def test_the_most_probable_solution_bounds_how_often_all_members_are_alike():
    """Three trajectories with chances 0.8 (solves), 0.15 and 0.05: all of two are alike with 0.665 > 0.8^2."""
    random, chances = np.random.default_rng(1), np.array([0.8, 0.15, 0.05])
    sides = []
    for _ in range(3000):
        drawn = random.choice(3, size=2, p=chances)
        group = [member(-1, float(d == 0), tokens=(int(d), 8), log_prob=math.log(chances[d])) for d in drawn]
        sides.append(identical(group, 1.0))
    measured, bounds = np.array(sides).T
    assert set(np.round(bounds, 6)) == {0.0, 0.64}
    error = math.sqrt(0.25 / len(measured))
    assert abs(measured.mean() - (chances**2).sum()) < 4 * error
    assert measured.mean() >= bounds.max() - 4 * error


def test_members_asked_for_different_rewards_are_not_compared():
    assert identical([member(0, 1.0), member(1, 1.0)], 1.0) is None
    assert identical([member(1, 1.0)], 1.0) is None
    assert identical([member(1, 1.0), member(1, 1.0)], 1.0) == (1.0, pytest.approx(math.exp(-2.0)))


@pytest.mark.usefixtures("no_processes")
def test_a_run_writes_them_under_their_names(tmp_path):
    config = smallest_run.get_config()
    config.rl.steps = 2
    # Literals that are short: the smallest model reads bytes.
    asked = reward_goal(bernoulli(0.5), literals=("-", "+"), template="{}")
    smallest_run.run(config, tmp_path / "run", member_messages=asked, step_values=conditioning())
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert len(rows) == 2
    for row in rows:
        assert {"mixed_groups", "peaked_groups"} <= row.keys()
        assert names.unknown("metrics.jsonl", set(row)) == []
        if {"reward_low", "reward_high"} <= row.keys():
            assert row["reward_gap"] == pytest.approx(row["reward_high"] - row["reward_low"])
