"""Where TRL's rewards, advantages and weights are others than ours; the list with the reasons is ``README.md``."""

from dataclasses import replace

import numpy as np
import pytest

from rlagents.methods import centered_advantage, overlong_penalty, recipes, token_mean, truncated_token_weights
from rlagents.types import Kind
from tests.judges.differing import CLIPPED, DAPO, DAPO_OPTIONS, assert_differ, batch_of, by_tokens, put, seeds
from tests.judges.trl_cases import ADVANTAGE, CASES, CLIP
from tests.judges.trl_judge import assert_agree, difference, ours, theirs

WITH_OVERLONG = by_tokens(overlong_penalty(6, 4), ADVANTAGE, CLIPPED)
CENTERED = by_tokens(centered_advantage(), CLIPPED)
WEIGHTED = by_tokens(ADVANTAGE, truncated_token_weights(1.5), CLIPPED)
RECIPES = (
    (recipes.cispo(clip_high=0.5), CASES["cispo"][1]),
    (recipes.grpo(clip_high=0.28, kl_coefficient=0, reduction=token_mean()), {"loss_type": "bnpo", **CLIP}),
)


def over_tokens(members, batch):
    """``[p g]`` or ``[p 1]``, given to every token."""
    return np.broadcast_to(np.asarray(members, np.float32)[..., None], batch[2].kind.shape).copy()


def rewarded(batch, outcome):
    logprobs, rewards, masks = batch
    return logprobs, replace(rewards, outcome=outcome.astype(np.float32)), masks


@seeds
def test_length_of_an_overlong_completion(seed):
    """TRL's punishment of the model's own tokens alone, added to the reward, is ours."""
    from trl.rewards import get_soft_overlong_punishment

    batch = batch_of(seed)
    _, rewards, masks = batch
    punish = get_soft_overlong_punishment(max_completion_len=6, soft_punish_cache=4)
    verdict = ours(WITH_OVERLONG, batch)

    def judge(counted):
        punished = punish([[1] * int(n) for n in counted.sum(-1).ravel()])
        return theirs(DAPO_OPTIONS, rewarded(batch, rewards.outcome + np.reshape(punished, masks.valid.shape)))

    assert_differ(verdict, judge(masks.kind != Kind.PAD))
    assert_agree(verdict, judge(masks.kind == Kind.MODEL))


@seeds
def test_equal_rewards(seed):
    """Ours are exactly 0; TRL's are too once the rewards have no size."""
    batch = batch_of(seed, rewards="equal", invalid=0.0)
    of_size = rewarded(batch, batch[1].outcome + np.float32(1000))
    verdict, judge = ours(DAPO, of_size), theirs(DAPO_OPTIONS, of_size)
    assert (verdict.advantages == 0).all()
    assert np.abs(judge.advantages).max() > 0.1
    assert_agree(verdict, theirs(DAPO_OPTIONS, rewarded(batch, np.zeros_like(batch[1].outcome))))


@seeds
def test_rewards_far_from_zero(seed):
    """TRL's of the rewards less 1000 (exact in float32) is ours of the rewards."""
    batch = batch_of(seed, rewards="shifted", invalid=0.0)
    verdict = ours(DAPO, batch)
    assert difference(verdict, theirs(DAPO_OPTIONS, batch)) > 1e-5
    assert_agree(verdict, theirs(DAPO_OPTIONS, rewarded(batch, batch[1].outcome - np.float32(1000))))


@seeds
def test_std_and_epsilon(seed):
    """Recipes take the population std and 1e-6; the stds' quotient takes TRL's advantages to theirs."""
    batch = batch_of(seed)
    groups = [row[there].astype(np.float64) for row, there in zip(batch[1].outcome, batch[2].valid, strict=True)]
    quotient = [(x.std(ddof=1) + 1e-4) / (x.std() + 1e-6) if len(x) > 1 else 0.0 for x in groups]
    for recipe, options in RECIPES:
        verdict = ours(recipe, batch)
        assert_differ(verdict, theirs(options, batch))
        assert_agree(verdict, theirs(options, batch, factor=over_tokens(np.array(quotient)[:, None], batch)))


@seeds
def test_std_of_the_batch(seed):
    """``scale_rewards="batch"`` is our centred advantage over the sample std of all rewards (plus 1e-4)."""
    batch = batch_of(seed)
    judge = theirs({**DAPO_OPTIONS, "scale_rewards": "batch"}, batch)
    assert_differ(ours(DAPO, batch), judge)
    std = batch[1].outcome[batch[2].valid].std(ddof=1)
    factor = over_tokens(np.full(batch[2].valid.shape, 1 / (std + 1e-4)), batch)
    assert_agree(ours(CENTERED, batch, factor=factor), judge)


@seeds
def test_limits_of_importance_weights(seed):
    """TRL's weights may have a lower limit, and an upper one below 1: a factor on our advantages."""
    with pytest.raises(ValueError, match="expected 1 or more"):
        truncated_token_weights(0.7)
    batch = batch_of(seed)
    weight = np.exp(batch[0].old - batch[0].rollout)
    for least, most in ((0.9, 1.5), (None, 0.7)):
        options = {
            **CASES["dapo, token_truncate, k3"][1],
            "beta": 0.0,
            "vllm_importance_sampling_clip_min": least,
            "vllm_importance_sampling_clip_max": most,
        }
        judge = theirs(options, batch)
        assert_differ(ours(WEIGHTED, batch), judge)
        assert_agree(ours(DAPO, batch, factor=np.clip(weight, least, most)), judge)


@seeds
def test_missing_log_prob_of_the_sampler(seed):
    """A NaN of the sampler's weighs 1 in TRL, as if it had been ``old``; ours keeps it to be seen."""
    logprobs, *said = batch_of(seed)
    lost = said[1].trainable & (np.random.default_rng(seed).random(said[1].kind.shape) < 0.2)
    stages, options = CASES["dapo, token_truncate, k3"]
    batch = replace(logprobs, rollout=put(logprobs.rollout, lost, np.nan)), *said
    assert np.isnan(ours(stages, batch).loss)
    likewise = replace(logprobs, rollout=put(logprobs.rollout, lost, logprobs.old)), *said
    assert_agree(ours(stages, likewise), theirs(options, batch))
