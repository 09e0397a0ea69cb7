"""Our losses against TRL's, where definitions agree: 1e-5 in loss and gradients, on ragged turns."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import draws
from tests.judges.trl_cases import CASES, MEAN_OVER_ROWS
from tests.judges.trl_judge import (
    assert_agree,
    difference,
    filled,
    largest_differences,
    ours,
    theirs,
)
from tests.methods.batches import batches, laws, make_batch
from tests.methods.harness import assert_close


def drawn(**fixed):
    """Batches on which rounding alone is left: sizes of ratios and rewards where the definitions part are elsewhere."""
    sizes = st.tuples(st.sampled_from([0.0, 0.1, 1.0]), st.sampled_from(["binary", "continuous"]))
    return sizes.flatmap(lambda size: batches(spread=size[0], rewards=size[1], **fixed)).map(filled)


def factor_of(seed, batch):
    shape = batch[2].kind.shape
    return None if seed is None else np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("name", CASES)
@settings(laws, max_examples=draws(12))
@given(data=st.data())
def test_loss_and_gradients(name, data):
    method, options = CASES[name]
    batch = data.draw(drawn(invalid=0.0) if options["loss_type"] in MEAN_OVER_ROWS else drawn())
    factor = factor_of(data.draw(st.none() | st.integers(0, 2**32 - 1)), batch)
    assert_agree(ours(method, batch, factor=factor), theirs(options, batch, factor=factor))


@pytest.mark.parametrize("name", ["grpo", "dr_grpo"])
@settings(laws, max_examples=draws(12))
@given(batch=drawn())
def test_advantages(name, batch):
    """With and without the std; a member that could not be scored is in no statistics; a lone one gets 0."""
    method, options = CASES[name]
    trained = batch[2].trainable
    judge = np.where(trained, theirs(options, batch).advantages[..., None], 0)
    assert_close(ours(method, batch).advantages, judge, relative=1e-5, floor=1e-3)


@settings(laws, max_examples=draws(12))
@given(batch=drawn())
def test_a_single_update(batch):
    """Without ``old`` both take the ratio to be 1 and its gradient that of the policy."""
    logprobs, *said = batch
    batch = replace(logprobs, old=None), *said
    method, options = CASES["bnpo, k3"]
    verdict = ours(method, batch)
    assert verdict.metrics["ratio"] == pytest.approx(float(batch[2].trainable.any()))
    assert_agree(verdict, theirs(options, batch))


@settings(laws, max_examples=draws(12))
@given(batch=drawn())
def test_metrics(batch):
    method, options = CASES["bnpo, k3"]
    mine, judge = ours(method, batch).metrics, theirs(options, batch).metrics
    assert mine["kl"] == pytest.approx(judge["kl"], rel=1e-5, abs=1e-7)
    assert mine["entropy"] == pytest.approx(judge["entropy"], rel=1e-5)
    assert mine["clip_fraction"] == pytest.approx(judge["clip_ratio/region_mean"], rel=1e-5)


def test_the_table():
    differences = largest_differences(range(6))
    assert differences.keys() == CASES.keys()
    assert max(differences.values()) < 1e-5
    assert max(differences.values()) > 0, "two libraries that round alike to the last bit are one library twice"


@pytest.mark.parametrize(("name", "other"), list(itertools.pairwise([*CASES, next(iter(CASES))])))
def test_the_judge_tells_losses_apart(name, other):
    """Our loss of one line is not TRL's of the next."""
    batch = filled(make_batch(5, spread=1.0, rewards="continuous", invalid=0.3))
    assert difference(ours(CASES[name][0], batch), theirs(CASES[other][1], batch)) > 1e-3


def test_the_list_of_differences_is_that_of_the_tests():
    """Every line of it names a test, and every test of a difference is in a line."""
    here = Path(__file__).parent
    listed = re.findall(r"`(test_\w+)` \|$", (here / "README.md").read_text(), re.MULTILINE)
    files = sorted(here.glob("test_trl_*.py"))
    tests = [name for path in files for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)]
    assert sorted(listed) == sorted(tests)
    assert len(tests) > 10
