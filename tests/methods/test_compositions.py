"""Random compositions of the table's stages that respect the order, and some that do not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlagents.methods import MethodError, Role, chain, method, named_chain, token_mean
from tests.effort import draws
from tests.methods.batches import make_batch
from tests.methods.harness import assert_close, assert_same, part, run, whole
from tests.methods.laws import (
    assert_bfloat16_in_float32_out,
    assert_sharded_credit_equals_single,
    assert_sharded_loss_equals_single,
    assert_state_comes_back_as_it_went_in,
    assert_traced_once,
)
from tests.methods.table import BATCH_GLOBAL, STAGES

BY_ROLE = {
    role: [name for name, stage in STAGES.items() if {s.role for s in chain(stage).stages} == {role}] for role in Role
}
MOST = 8


def composed(seed):
    """Up to eight stages in a lawful order: filters and rewards mixed, an estimator, reshapers; the loss anywhere."""
    rng = np.random.default_rng(seed)

    def some(*roles):
        names = [name for role in roles for name in BY_ROLE[role]]
        return list(rng.choice(names, rng.integers(0, 3), replace=False))

    credit = [*some(Role.FILTER, Role.REWARD), rng.choice(BY_ROLE[Role.ESTIMATOR]), *some(Role.RESHAPER)]
    for name in [rng.choice(BY_ROLE[Role.SURROGATE]), *some(Role.PENALTY)]:
        credit.insert(rng.integers(0, len(credit) + 1), name)
    assert 2 <= len(credit) <= MOST
    # A name before every metric: two stages of one kind may stand in one chain.
    parts = [(f"{place}", STAGES[name]) for place, name in enumerate(credit)]
    return credit, method(named_chain(*parts), token_mean())


def assert_slices_add_up(composition, batch, out):
    """Micro-batched == whole."""
    total, gradient = 0.0, np.full(batch[2].kind.shape, np.inf)
    for index in (np.s_[:1], np.s_[1:]):
        cut = jax.tree.map(lambda x, at=index: jnp.asarray(x)[at], (batch[0], out.credit, batch[2], out.measures))
        (loss, _), slopes = part(composition, out.state, *cut)
        total, gradient[index] = total + loss, slopes.policy
    assert_close(np.float32(total), out.loss, relative=1e-5, floor=1)
    assert_close(gradient, out.gradients[0].policy, relative=1e-5, floor=1e-3)


def assert_jitted_laws(composition, seed, out):
    """What the program of the whole gives: padding changes no bit, prompts in another order, nothing of nobody."""
    assert_same(run(composition, make_batch(seed, padding=0.0)), out)
    order = np.array([2, 0, 3, 1])
    moved = run(composition, jax.tree.map(lambda x: x[order], make_batch(seed)))
    assert_close(moved.gradients[0].policy, out.gradients[0].policy[order], relative=1e-5, floor=1e-3)
    logprobs, rewards, masks = make_batch(seed)
    nobody = run(composition, (logprobs, rewards, masks.replace(valid=np.zeros_like(masks.valid))))
    assert nobody.loss == 0
    assert not nobody.gradients[0].policy.any()


@pytest.mark.parametrize("seed", range(draws(200)))
def test_what_is_in_order_runs_and_keeps_the_laws(seed):
    names, composition = composed(seed)
    batch = make_batch(seed)
    logprobs, rewards, masks = jax.tree.map(jnp.asarray, batch)
    if seed % 10:
        out = jax.tree.map(np.asarray, whole(composition, logprobs, rewards, masks))
    else:
        out = run(composition, batch)
        eager = jax.tree.map(np.asarray, whole(composition, logprobs, rewards, masks))
        assert_close(eager.credit, out.credit, relative=1e-5)
        assert_close(eager.gradients[0].policy, out.gradients[0].policy, relative=1e-5, floor=1e-3)
    assert_slices_add_up(composition, batch, out)
    assert_state_comes_back_as_it_went_in(composition)
    if seed % 10 == 0:
        assert_jitted_laws(composition, seed, out)
    assert np.isfinite(out.loss), names
    for gradient in (out.gradients[0].policy, out.gradients[0].entropy):
        assert np.isfinite(gradient).all(), names
        assert (gradient[~out.credit.mask] == 0).all(), names
    for field in ("old", "old_entropy", "reference", "rollout"):
        assert (getattr(out.gradients[0], field) == 0).all(), names
    assert not (out.credit.valid & ~masks.valid).any(), names
    assert not (out.credit.mask & ~masks.trainable).any(), names


@pytest.mark.parametrize("seed", range(0, draws(200), 10))
def test_compiled_compositions_keep_the_laws_of_execution(seed):
    """Sharded == single, talking only where a stage compares prompts; bfloat16 in, float32 out; traced once."""
    names, composition = composed(seed)
    assert_sharded_credit_equals_single(composition, talks=not BATCH_GLOBAL.isdisjoint(names))
    assert_sharded_loss_equals_single(composition)
    assert_bfloat16_in_float32_out(composition)
    assert_traced_once(composition)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_out_of_order_is_refused_with_what_to_put_where(seed):
    rng = np.random.default_rng(seed)
    late = rng.choice([Role.FILTER, Role.REWARD, Role.RESHAPER])
    stage, estimator = STAGES[rng.choice(BY_ROLE[late])], STAGES[rng.choice(BY_ROLE[Role.ESTIMATOR])]
    surrogate = STAGES[rng.choice(BY_ROLE[Role.SURROGATE])]
    order = (stage, estimator) if late == Role.RESHAPER else (estimator, stage)
    with pytest.raises(MethodError, match=r"put '.*' (before|after) '.*'"):
        method(chain(surrogate, *order), token_mean())
