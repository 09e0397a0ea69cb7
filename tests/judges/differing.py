"""What the tests of differences share: batches, methods that are made (and compiled) once, and two words."""

import numpy as np
import pytest

from rlagents.methods import chain, clipped_surrogate, method, token_mean
from tests.judges.trl_cases import CASES
from tests.judges.trl_judge import difference, filled
from tests.methods.batches import SHAPE, make_batch

seeds = pytest.mark.parametrize("seed", range(3))
CLIPPED = clipped_surrogate(0.2, 0.28)
DAPO, DAPO_OPTIONS = CASES["dapo"]
BNPO_K3, BNPO_K3_OPTIONS = CASES["bnpo, k3"]


def by_tokens(*stages):
    return method(chain(*stages), token_mean())


def batch_of(seed, *, spread=0.5, rewards="continuous", invalid=0.3):
    return filled(make_batch(seed, SHAPE, spread=spread, rewards=rewards, invalid=invalid))


def assert_differ(verdict, judge):
    assert difference(verdict, judge) > 1e-3


def put(array, where, values):
    return np.where(where, values, array).astype(np.float32)
