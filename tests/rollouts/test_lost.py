"""What the infrastructure lost is no failure of the policy: it is counted, and weighs nothing anywhere."""

import math
from collections import Counter

import jax.numpy as jnp
import numpy as np
import pytest

from rlagents.facts import Outcome
from rlagents.methods import chain, clipped_surrogate, group_advantage, method, token_mean
from rlagents.rollouts.collate import collate
from rlagents.rollouts.driver import Rollout
from rlagents.rollouts.stored import from_document, to_document
from rlagents.step_log import rollout_values
from rlagents.types import LogProbs
from tests.rollouts.test_collate import BUCKETS, trajectory

GRPO = method(chain(group_advantage(ddof=0, epsilon=0.0), clipped_surrogate(0.2, 0.2)), token_mean())


def group(*rewards, stream=0):
    """None in place of a reward is a lost member."""
    return [
        trajectory(stream, number, outcome=None, lost="its worker died")
        if reward is None
        else trajectory(stream, number, outcome=Outcome(reward, named={"depth": 3.0}))
        for number, reward in enumerate(rewards)
    ]


def credit(*groups):
    batch = collate(groups, **BUCKETS | {"pad_prompts_to": len(groups)})
    logprobs = LogProbs(policy=jnp.zeros(batch.masks.kind.shape))
    found, _, metrics = GRPO.credit(GRPO.init(), logprobs, batch.rewards, batch.masks)
    return np.where(found.mask, found.advantages, 0.0), found, metrics


def test_a_lost_member_leaves_the_others_as_they_would_be_without_it():
    advantages, found, metrics = credit(group(None, 1.0, 3.0))
    without, *_ = credit(group(1.0, 3.0))
    np.testing.assert_array_equal(advantages[0, 1:], without[0])
    assert not advantages[0, 0].any()
    assert np.asarray(found.valid).tolist() == [[False, True, True]]
    # Scored 0, it would have been the worst of the group, and the mean would have been 4/3.
    assert float(metrics["outcome"].value) == 2.0


def test_a_lost_group_leaves_the_other_as_it_would_be_without_it():
    advantages, _, metrics = credit(group(None, None), group(1.0, 3.0, stream=1))
    without, *_ = credit(group(1.0, 3.0))
    np.testing.assert_array_equal(advantages[1], without[0])
    assert not advantages[0].any()
    assert float(metrics["outcome"].value) == 2.0


@pytest.mark.parametrize(("rewards", "mean"), [((None, 1.0, 3.0), 2.0), ((None, None), math.nan)])
def test_the_metric_of_rewards_is_of_what_was_scored(rewards, mean):
    groups = [group(*rewards)]
    batch = collate(groups, **BUCKETS)
    values = rollout_values(Rollout(groups, [], Counter(trajectories_lost=rewards.count(None))), batch, version=0)
    assert values["reward"] == pytest.approx(mean, nan_ok=True)
    assert math.isnan(values["turns"]) == math.isnan(mean)
    assert values["rollout/trajectories_lost"] == rewards.count(None)


@pytest.mark.parametrize(
    "damage",
    [
        lambda document: document.pop("groups"),
        lambda document: document["groups"][0][0].pop("outcome"),
        lambda document: document["groups"][0][0].update(kinds=[99]),
        lambda document: document["groups"][0][0].update(unheard_of=1),
        lambda document: document["groups"][0][0]["token_ids"].pop(),
        lambda document: document.update(skipped=[{"stream": 1}]),
        lambda document: document.update(groups=7),
    ],
)
def test_a_stored_rollout_that_is_damaged_is_named(damage):
    document = to_document(Rollout([group(1.0)], [], Counter()))
    assert to_document(from_document(document)) == document
    damage(document)
    with pytest.raises(ValueError, match="the rollout that was sampled ahead is damaged"):
        from_document(document)
