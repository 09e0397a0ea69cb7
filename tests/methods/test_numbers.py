"""Numbers that the papers give, and a bound of theirs by simulation."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from rlagents.methods import chain, clipped_surrogate, exploration, method, soften_negative_turns, token_mean
from rlagents.methods.base import estimator
from rlagents.methods.exploration import entropy_bonus
from rlagents.numerics import masked_variance
from rlagents.types import Kind, LogProbs, Masks, Rewards


def given_advantages(advantages):
    """An estimator that was told."""

    def credit(credit, logprobs, rewards, masks):
        return replace(credit, advantages=jnp.where(credit.mask, advantages, 0)), {}

    return estimator("given_advantages", credit)


def one_turn_each(advantages, stage, *, scores=None, old_entropy=None, successes=0):
    """Advantages ``[g t]`` of one group through a stage; every token is a turn of its own."""
    advantages = np.asarray(advantages, np.float32)[None]
    p, g, t = advantages.shape
    turn = np.broadcast_to(np.arange(t), (p, g, t))
    members = np.zeros((p, g), int)
    masks = Masks(np.full((p, g, t), Kind.MODEL), turn, members + t, members == 0, members > 0, members - 1)
    facts = np.full((p, g, t), successes)
    scores = np.zeros((p, g, t), np.float32) if scores is None else np.asarray(scores, np.float32)[None]
    rewards = Rewards(np.zeros((p, g), np.float32), scores, facts, facts, facts > 99)
    zeros = np.zeros((p, g, t), np.float32)
    logprobs = LogProbs(zeros, old=zeros, old_entropy=zeros if old_entropy is None else old_entropy[None])
    whole = method(chain(given_advantages(advantages), stage, clipped_surrogate(0.2, 0.2)), token_mean())
    credit, _, _ = whole.credit(whole.init(), logprobs, rewards, masks)
    return np.asarray(credit.advantages)[0]


def test_two_thirds_of_a_turn_s_documents_spare_two_thirds_of_its_penalty():
    softened = one_turn_each([[-1.2, -1.2], [1.2, 1.2]], soften_negative_turns(), scores=[[2 / 3, 0], [2 / 3, 0]])
    np.testing.assert_allclose(softened, [[-0.4, -1.2], [1.2, 1.2]], rtol=1e-6)


def test_a_bonus_of_one_percent_flips_no_sign_while_z_is_below_a_hundred():
    rng = np.random.default_rng(0)
    entropy = np.abs(rng.standard_cauchy((4, 64))).astype(np.float32)
    z = (entropy - entropy.mean(-1, keepdims=True)) / entropy.std(-1, keepdims=True)
    assert 5 < np.abs(z).max() < 100
    advantages = rng.normal(size=(4, 64))
    stage = entropy_bonus(0.01, which=exploration.after_successful_call)
    shaped = one_turn_each(advantages, stage, old_entropy=entropy, successes=1)
    np.testing.assert_array_equal(np.sign(shaped), np.sign(advantages))
    np.testing.assert_allclose(shaped[:, 1:], (advantages * (1 + 0.01 * z))[:, 1:], rtol=1e-4)
    np.testing.assert_allclose(shaped[:, 0], advantages[:, 0], rtol=1e-6)


@pytest.mark.parametrize("group_size", range(2, 17))
def test_reward_tokens_keep_the_variance_of_a_group_above_its_bound(group_size):
    """``E[var] >= (G - 1) / G * p (1 - p) * eps^2`` (RC-GRPO, arXiv 2602.03025, proposition 4.3), population form."""
    rng, groups = np.random.default_rng(group_size), 20_000
    for p, high, low in ((0.5, 0.9, 0.3), (0.3, 1.0, 0.0), (0.8, 0.55, 0.5)):
        token = rng.random((groups, group_size)) < p
        rewards = (rng.random(token.shape) < np.where(token, high, low)).astype(np.float32)
        variances = np.asarray(masked_variance(rewards, np.ones_like(token), axis=-1, ddof=0), np.float64)
        bound = (group_size - 1) / group_size * p * (1 - p) * (high - low) ** 2
        error = variances.std() / groups**0.5
        assert variances.mean() >= bound - 5 * error
        # Rewards that are sure given their token have no other variance: the bound is met exactly.
        if (high, low) == (1.0, 0.0):
            assert abs(variances.mean() - bound) < 5 * error
