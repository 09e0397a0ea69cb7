"""The tiny batch of the docstrings: it is a batch like any other, and says what is wrong with what it is given."""

import numpy as np
import pytest

from rlagents.methods import (
    MethodError,
    centered_advantage,
    chain,
    clipped_surrogate,
    drop,
    predicates,
    rebalance_answers,
    specimen,
    turn_rewards,
)
from rlagents.methods.checks import check_fit
from tests.methods.harness import run
from tests.methods.table import METHODS


def test_it_fits_every_method():
    logprobs, rewards, masks = specimen.batch()
    check_fit(logprobs, masks, rewards)
    assert masks.kind.shape == (1, 2, 3)
    for name in ("grpo", "calib_adv", "tao_rl", "whitened_advantage"):
        assert np.isfinite(run(METHODS[name], (logprobs, rewards, masks)).loss), name


def test_what_is_missing_is_put_where_it_belongs():
    """An estimator goes after the last filter or reward shaper, wherever the surrogate stands."""
    stages = chain(drop(predicates.truncated), turn_rewards(1.0))
    plain = specimen.advantages(stages)
    assert specimen.advantages(chain(clipped_surrogate(0.2, 0.2), stages)) == plain
    assert specimen.advantages(rebalance_answers(1.0)) != plain


def test_what_makes_no_sense_is_refused():
    with pytest.raises(TypeError, match=r"\['reward'\] are no fields of LogProbs, Rewards or Masks"):
        specimen.batch(reward=[[1.0, 0.0]])
    with pytest.raises(MethodError, match=r"none of \['centered_advantage'\] has a loss half"):
        specimen.terms(centered_advantage())
    with pytest.raises(MethodError, match=r"Rewards.outcome has shape \(2,\)"):
        specimen.advantages(centered_advantage(), outcome=[1.0, 0.0])
