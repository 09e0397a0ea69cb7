"""Where TRL divides by something else than we do; the list with the reasons is ``README.md``."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from rlagents.methods import (
    chain,
    constant,
    drop,
    entropy_regularizer,
    fact,
    method,
    penalty,
    predicates,
    sequence_mean,
    token_mean,
)
from tests.judges.differing import (
    BNPO_K3,
    BNPO_K3_OPTIONS,
    CLIPPED,
    DAPO,
    DAPO_OPTIONS,
    assert_differ,
    batch_of,
    by_tokens,
    seeds,
)
from tests.judges.trl_cases import ADVANTAGE, CASES, CLIP
from tests.judges.trl_judge import assert_agree, ours, theirs

WITHOUT_UNIFORM = by_tokens(drop(predicates.uniform_groups), ADVANTAGE, CLIPPED)


def _entropy(logprobs, credit, masks):
    return -0.01 * fact("entropy_of_tokens", logprobs, "entropy"), {}


ENTROPY_OF_TOKENS = penalty("entropy_of_tokens", _entropy, measure=lambda credit, masks: token_mean()(credit.mask))
WITH_ENTROPY = {
    loss_type: [
        method(chain(ADVANTAGE, CLIPPED, entropy), reduction)
        for entropy in (entropy_regularizer(0.01), ENTROPY_OF_TOKENS)
    ]
    for loss_type, reduction in (("grpo", sequence_mean()), ("dr_grpo", constant(9)))
}


@seeds
@pytest.mark.parametrize("name", ["grpo", "grpo, k3", "dr_grpo", "gspo", "luspo"])
def test_rows_without_trained_tokens(name, seed):
    """Ours, times the share of rows with trained tokens, is TRL's."""
    batch = batch_of(seed)
    verdict, judge = ours(CASES[name][0], batch), theirs(CASES[name][1], batch)
    assert_differ(verdict, judge)
    assert_agree(verdict, judge, times=batch[2].trainable.any(-1).mean())


@seeds
def test_uniform_groups(seed):
    """Ours, times the share of tokens outside uniform groups, is TRL's."""
    logprobs, rewards, masks = batch_of(seed)
    outcome = rewards.outcome.copy()
    outcome[0] = 1.0
    batch = logprobs, replace(rewards, outcome=outcome), masks
    verdict = ours(WITHOUT_UNIFORM, batch)
    judge = theirs(DAPO_OPTIONS, batch)
    assert_differ(verdict, judge)
    valid = masks.valid
    uniform = [np.ptp(row[there]) == 0 if there.any() else True for row, there in zip(outcome, valid, strict=True)]
    kept = masks.trainable & ~np.array(uniform)[:, None, None]
    assert_agree(verdict, judge, times=kept.sum() / masks.trainable.sum())


def halves(batch):
    p = batch[2].valid.shape[0]
    return [jax.tree.map(lambda x, at=at: x[at : at + p // 2], batch) for at in (0, p // 2)]


@seeds
def test_tokens_of_an_update(seed):
    """Several updates a generation batch: ours of each, times its tokens over the mean number, is TRL's."""
    batch = batch_of(seed)
    judge = theirs({**DAPO_OPTIONS, "steps_per_generation": 2}, batch)
    tokens = [half[2].trainable.sum() for half in halves(batch)]
    verdicts = [ours(DAPO, half) for half in halves(batch)]
    assert abs(verdicts[0].loss - judge.losses[0]) > 1e-4
    for verdict, loss, count in zip(verdicts, judge.losses, tokens, strict=True):
        assert verdict.loss * count / np.mean(tokens) == pytest.approx(loss, rel=1e-5, abs=1e-6)


@seeds
def test_mean_of_means_in_accumulation(seed):
    """Gradient accumulation in bnpo: the mean of ours of the micro-batches, not ours of the whole, is TRL's."""
    batch = batch_of(seed)
    judge = theirs({**BNPO_K3_OPTIONS, "steps_per_generation": 2, "gradient_accumulation_steps": 2}, batch)
    assert_differ(ours(BNPO_K3, batch), judge)
    first, second = (ours(BNPO_K3, half) for half in halves(batch))
    joined = {
        name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in ("losses", "policy", "entropy")
    }
    assert_agree(first._replace(**joined), judge, times=0.5)


@seeds
@pytest.mark.parametrize("loss_type", WITH_ENTROPY)
def test_mean_of_the_entropy(loss_type, seed):
    """TRL's entropy is a mean over tokens beside any loss; ours goes through the method's reduction."""
    batch = batch_of(seed, invalid=0.0)
    of_the_method, of_the_tokens = WITH_ENTROPY[loss_type]
    options = {"loss_type": loss_type, **CLIP, "max_completion_length": 9, "entropy_coef": 0.01}
    judge = theirs(options, batch)
    assert_differ(ours(of_the_method, batch), judge)
    assert_agree(ours(of_the_tokens, batch), judge)
