"""Alarms: what makes one go on and off, what is remembered, and that every kind sees what it is there for."""

import itertools
import math
import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.alarms import ALARM_NAMES, Alarm, Standing, Watch, look, make_watch
from tests.effort import draws

HEALTHY = {
    "reward": 0.5,
    "loss": -0.01,
    "gradient_norm": 0.3,
    "entropy": 1.2,
    "policy_ratio_max": 1.7,
    "rollout_kl": 0.01,
    "uniform_groups": 0.25,
    "garbled_turns": 0.05,
    "tokens_trained": 100.0,
    "rollout/trajectories": 16,
    "rollout/trajectories_lost": 0,
}
SICK = {
    "non_finite": {"loss": math.nan},
    "ratio_exploded": {"policy_ratio_max": 51.0},
    "kl_exploded": {"rollout_kl": 0.6},
    "gradient_norm_exploded": {"gradient_norm": 1001.0},
    "entropy_collapsed": {"entropy": 0.0005},
    "rewards_all_equal": {"uniform_groups": 1.0},
    "format_collapsed": {"garbled_turns": 0.51},
    "tool_faults": {"rollout/trajectories_lost": 2},
}
PATIENCE = {"entropy_collapsed": 3, "rewards_all_equal": 10, "format_collapsed": 3, "tool_faults": 3}
VALUES = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0, 50.0, 5000.0, math.inf, math.nan]), max_size=40)


def above(limit, patience=1, **more):
    return Alarm("x", lambda values: values.get("x"), lambda _: limit, lambda *_: "too much", patience, **more)


def readings(alarm, values):
    standing, found = Standing(), []
    for value in values:
        standing, reading = look(alarm, standing, {} if value is None else {"x": value})
        found.append(reading)
    return found


@pytest.mark.parametrize(
    ("values", "on"),
    [
        ([0, 2, 2, 2, 2, 0, 2], "...xx.."),  # on after three in a row, off at once
        ([2, 2, 1, 2, 2, 2], ".....x"),  # the bound itself is not beyond it
        ([2, 2, None, 2, None, 0], "...xx."),  # what says nothing neither helps nor harms
        ([2, 2, math.nan, 2, math.nan], "...xx"),
        ([2, math.inf, 2], "..x"),
    ],
)
def test_an_alarm_is_on_while_its_number_has_been_beyond_the_bound_for_long_enough(values, on):
    found = readings(above(1, patience=3), values)
    assert "".join(".x"[reading.on] for reading in found) == on
    begins = [reading.begins for reading in found]
    starts = [a < b for a, b in itertools.pairwise([".", *on])]
    assert begins == starts


def test_an_alarm_may_look_for_too_little():
    found = readings(above(1, beyond=operator.lt), [0.5, 1, 2])
    assert [reading.on for reading in found] == [True, False, False]


def test_what_is_remembered_is_finite_and_above_0_and_bounded():
    seen = []
    alarm = Alarm("x", lambda v: v["x"], lambda earlier: seen.append(earlier) or 1e9, lambda *_: "", remembers=3)
    readings(alarm, [1, 0, math.inf, 2, math.nan, 3, 4, 5])
    assert seen == [(), (1,), (1,), (1,), (1, 2), (1, 2), (1, 2, 3), (2, 3, 4)]


def healthy(steps, **changed):
    return [HEALTHY | changed] * steps


def raised(watch, rows):
    return [(one.step, one.alarm) for step, row in enumerate(rows) for one in watch.observe(step, row)]


def test_every_alarm_has_a_case():
    assert tuple(SICK) == ALARM_NAMES == tuple(alarm.name for alarm in make_watch()._alarms)


@pytest.mark.parametrize("name", SICK)
def test_each_alarm_is_raised_by_its_own_sickness_and_by_no_other(name):
    patience = PATIENCE.get(name, 1)
    rows = healthy(10) + healthy(patience - 1, **SICK[name]) + healthy(5) + healthy(patience + 2, **SICK[name])
    watch = make_watch()
    found = raised(watch, rows)
    assert found == [(10 + patience - 1 + 5 + patience - 1, name)] if patience > 1 else [(15, name)]
    assert watch.on == (name,)
    assert watch.counted() == {"alarms": 1} | {f"alarms/{other}": int(other == name) for other in ALARM_NAMES}
    assert not raised(watch, healthy(1))
    assert watch.on == ()


def test_what_an_alarm_says():
    watch, said = make_watch(patience=1, equal_rewards_steps=1), {}
    for step, sick in enumerate(SICK.values()):
        (one,) = watch.observe(step, HEALTHY | sick)
        said[one.alarm] = str(one), one.value, one.threshold
    assert said["non_finite"][0] == "alarm non_finite at step 0: loss is nan"
    assert said["ratio_exploded"] == (
        "alarm ratio_exploded at step 1: a token became 51 times as likely within a step's updates, more than 50 times",
        51.0,
        50.0,
    )
    assert said["tool_faults"][1] == 0.125
    assert said["rewards_all_equal"][0].endswith("in every group all rewards are equal, for 1 steps; the mean is 0.5")
    assert said["format_collapsed"][0].endswith("51% of model turns are garbled or cut, more than 50%, for 1 steps")
    assert set(said) == set(SICK)


def test_several_numbers_that_are_not_finite_are_named():
    (one,) = make_watch().observe(3, dict.fromkeys("abcd", math.inf))
    assert (one.value, one.message) == (4, "a is inf, b is inf, c is inf, ...")


def test_a_mean_over_no_trajectory_is_no_number_and_no_alarm():
    assert raised(make_watch(), healthy(3, reward=math.nan, turns=math.nan)) == []
    assert raised(make_watch(), healthy(3, reward=math.inf)) == [(0, "non_finite")]


def test_a_gradient_is_compared_with_those_before_it():
    sick = {"gradient_norm": 40.0}
    assert raised(make_watch(), healthy(4) + healthy(1, **sick)) == []  # too few to compare with
    assert raised(make_watch(), healthy(5) + healthy(1, **sick)) == [(5, "gradient_norm_exploded")]
    # Steps without a gradient, where all rewards are equal, are no measure.
    assert raised(make_watch(), healthy(50, gradient_norm=0.0) + healthy(1, gradient_norm=0.9)) == []
    tiny = healthy(10, gradient_norm=1e-6)
    assert raised(make_watch(), tiny + healthy(1, gradient_norm=0.9)) == []  # below the floor
    assert raised(make_watch(), tiny + healthy(1, gradient_norm=1.1)) == [(10, "gradient_norm_exploded")]


def test_a_step_that_trained_no_token_says_nothing_of_tokens():
    nothing = {"tokens_trained": 0.0, "entropy": 0.0, "gradient_norm": 0.0, "policy_ratio_max": 0.0}
    assert raised(make_watch(), healthy(20, **nothing)) == []
    assert raised(make_watch(), [{"reward": 0.0}] * 20) == []  # nor does a method without these metrics


@given(VALUES, st.integers(0, 40))
@settings(deadline=None, max_examples=draws(60))
def test_a_resumed_watch_goes_on_as_if_it_had_never_stopped(values, cut):
    rows = [HEALTHY | {"gradient_norm": value, "policy_ratio_max": value, "entropy": value} for value in values]
    whole, before, resumed = make_watch(), make_watch(), make_watch()
    told = [(one, whole.on) for step, row in enumerate(rows) for one in whole.observe(step, row)]
    written = []
    for step, row in enumerate(rows[:cut]):
        before.observe(step, row)
        written.append({"step": step} | row | before.counted())
    resumed.replay(written)
    assert resumed.on == before.on
    after = [(one, resumed.on) for step, row in enumerate(rows) if step >= cut for one in resumed.observe(step, row)]
    assert [(str(one), on) for one, on in after] == [(str(one), on) for one, on in told if one.step >= cut]


def test_only_named_alarms_stop_a_run():
    watch = make_watch(stop=("kl_exploded", "entropy_collapsed"))
    found = watch.observe(0, HEALTHY | SICK["ratio_exploded"])
    assert watch.stops(found) is None
    found = watch.observe(1, HEALTHY | SICK["ratio_exploded"] | SICK["kl_exploded"])
    assert watch.stops(found) is found[0]
    assert found[0].alarm == "kl_exploded"
    assert Watch((), ()).observe(0, HEALTHY) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"stop": ("nonfinite",)},
            "stop names 'nonfinite', which is no alarm (did you mean 'non_finite'?); the",
        ),
        ({"stop": "non_finite"}, "stop is 'non_finite'; give names of alarms, such as ('non_finite',)"),
        ({"stop": (3,)}, "stop names 3, which is no alarm; the alarms are non_finite, ratio_exploded"),
        ({"max_policy_ratio": 0}, "max_policy_ratio is 0; give a number > 0."),
        ({"max_rollout_kl": math.nan}, "max_rollout_kl is nan; give a number > 0."),
        ({"max_gradient_norm": "1"}, "max_gradient_norm is '1'; give a number > 0."),
        ({"gradient_norm_floor": -1}, "gradient_norm_floor is -1; give a number >= 0."),
        ({"min_entropy": None}, "min_entropy is None; give a number >= 0."),
        ({"max_garbled_turns": 1.5}, "max_garbled_turns is 1.5; give a share, a number >= 0 and <= 1."),
        ({"max_lost_trajectories": True}, "max_lost_trajectories is True; give a share"),
        ({"equal_rewards_steps": 0}, "equal_rewards_steps is 0; give a whole number >= 1."),
        ({"patience": 1.0}, "patience is 1.0; give a whole number >= 1."),
    ],
)
def test_wrong_settings_are_refused(given, said):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the text is what the test looks at
        make_watch(**given)
    assert str(caught.value).startswith(said)
