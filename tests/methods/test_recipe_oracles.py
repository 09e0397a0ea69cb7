"""Every recipe whole, loss, gradient and advantages, against an oracle written from its paper."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import draws
from tests.methods.batches import REWARDS, SHAPE, batches, laws, make_batch
from tests.methods.harness import assert_close
from tests.methods.table import RECIPES
from tests.methods.test_oracles import computed, precisions
from tests.oracles import recipes_agents as agents
from tests.oracles import recipes_outcome as outcome

EXPECTED = {
    "grpo": outcome.grpo,
    "dr_grpo": outcome.dr_grpo,
    "rloo": outcome.rloo,
    "reinforce_plus_plus": outcome.reinforce_plus_plus,
    "reinforce_plus_plus_baseline": outcome.reinforce_plus_plus_baseline,
    "dapo": functools.partial(outcome.dapo, max_tokens=6, buffer_tokens=4),
    "gspo": outcome.gspo,
    "cispo": functools.partial(outcome.cispo, clip_high=0.28),
    "rc_grpo": outcome.rc_grpo,
    "calib_adv": agents.calib_adv,
    # The recipe follows the paper's summary, a call that succeeded, and leaves SimpleTIR's filter to whoever adds it.
    "tao_rl": lambda batch: agents.tao_rl(batch, opened_by=batch.turn_tool_successes, least_finished=0),
    "simple_tir": agents.simple_tir,
    "lld": agents.lld,
    "step_search": agents.step_search,
    "aepo": agents.aepo,
}

ADDING = {"rloo", "reinforce_plus_plus", "dapo", "step_search"}
"""These add to the reward before they compare: beside 1000, what is added is rounded away."""

MANY = (4, 6, 9, 3)
"""Enough members for four finished ones, and enough turns after a call."""


def shape_of(name):
    return MANY if name in {"simple_tir", "tao_rl"} else SHAPE


def expected(name, batch):
    """What the oracle says; ``mass`` is the sum of the magnitudes of the loss's terms."""
    logprobs, rewards, masks = batch
    fields = vars(logprobs) | vars(rewards) | vars(masks)
    facts = {field: x.astype(float) if x.dtype == np.float32 else x for field, x in fields.items() if field != "named"}
    loss, gradient, advantages, mass = EXPECTED[name](SimpleNamespace(**facts))
    return SimpleNamespace(loss=loss, gradient=gradient, advantages=advantages, mass=mass)


@st.composite
def drawn(draw, name):
    """A batch for this recipe; most spreads let clips bind on some tokens and leave others.

    A ratio of exp(20) comes only where no advantage can be nearly 0: it would show the rounding of that one alone.
    """
    rewards = draw(st.sampled_from([kind for kind in REWARDS if name not in ADDING or kind != "shifted"]))
    apart = rewards in {"binary", "equal"} and name not in ADDING | {"reinforce_plus_plus_baseline"}
    fixed = {
        "spread": draw(st.sampled_from([0.3, 0.0, 1.0, 12.0] if apart else [0.3, 0.0, 1.0])),
        "invalid": draw(st.sampled_from([0.0, 0.3])),
    }
    return draw(batches(shape_of(name), rewards=rewards, **fixed))


@precisions
@pytest.mark.parametrize("name", EXPECTED)
@settings(laws, max_examples=draws(24))
@given(data=st.data())
def test_recipes(tolerance, name, data):
    batch = data.draw(drawn(name))
    ours, theirs = computed(RECIPES[name], batch, tolerance), expected(name, batch)
    assert_close(ours.credit.advantages, theirs.advantages, relative=tolerance, floor=1e-6)
    assert_close(ours.loss, np.float64(theirs.loss), relative=tolerance, floor=theirs.mass)
    assert_close(ours.gradients[0].policy, theirs.gradient, relative=tolerance)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_batches_of_the_table_ask_something(name):
    """Among five plain batches each recipe trains on some tokens and leaves a gradient."""
    found = [expected(name, batch) for batch in plain(name, range(5))]
    assert all(np.isfinite(x.loss) and np.isfinite(x.gradient).all() for x in found)
    assert sum(np.any(x.gradient) and np.any(x.advantages > 0) and np.any(x.advantages < 0) for x in found) >= 3


def plain(name, seeds):
    """Binary rewards, as all recipes take them."""
    return [make_batch(seed, shape_of(name), invalid=0.1) for seed in seeds]


def largest_differences(seeds=range(5), tolerance=2e-5):
    """Of each recipe the largest difference between library and oracle over plain batches, as a share.

    Advantages and gradient: of their largest magnitude; loss: of the sum of the magnitudes of its terms. In float32,
    or in float64 for a ``tolerance`` below 1e-6.
    """
    largest = dict.fromkeys(EXPECTED, 0.0)
    for name in EXPECTED:
        for batch in plain(name, seeds):
            ours, theirs = computed(RECIPES[name], batch, tolerance), expected(name, batch)
            for x, y, scale in (
                (ours.credit.advantages, theirs.advantages, np.abs(theirs.advantages).max()),
                (ours.loss, theirs.loss, theirs.mass),
                (ours.gradients[0].policy, theirs.gradient, np.abs(theirs.gradient).max()),
            ):
                largest[name] = max(largest[name], float(np.abs(x - y).max() / max(scale, 1e-30)))
    return largest


if __name__ == "__main__":
    single, double = largest_differences(), largest_differences(tolerance=1e-12)
    print("| recipe | largest difference, float32 | float64 |\n| --- | --- | --- |")
    for recipe in EXPECTED:
        print(f"| `{recipe}` | {single[recipe]:.1e} | {double[recipe]:.1e} |")
