"""chain is associative with unit identity(); loss halves commute with credit halves; how masked and named_chain act."""

import functools
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.methods import (
    MethodError,
    Role,
    chain,
    clipped_surrogate,
    group_advantage,
    identity,
    kl_penalty_k3,
    masked,
    method,
    named_chain,
    token_mean,
)
from tests.effort import draws
from tests.methods import examples
from tests.methods.batches import batches, laws, make_batch
from tests.methods.harness import assert_close, assert_same, run
from tests.methods.table import METHODS, STAGES, complete

words = st.lists(st.sampled_from(list(STAGES.values())), max_size=4).map(tuple)


@settings(laws, max_examples=draws(50))
@given(words, words, words)
def test_chain_is_associative_with_unit_identity_exactly(a, b, c):
    flat = chain(*a, *b, *c)
    assert chain(chain(*a), chain(chain(*b), chain(*c))) == flat
    assert chain(chain(chain(*a), chain(*b)), chain(*c)) == flat
    assert chain(identity(), *a, identity()) == chain(*a) == chain(chain(*a))
    assert len(flat.stages) == sum(len(chain(part).stages) for part in (*a, *b, *c))


def test_chain_keeps_order():
    first, then = group_advantage(ddof=0, epsilon=1e-6), examples.soften_negative_turns()
    assert chain(first, then).stages == (first, then)
    assert chain(first, then) != chain(then, first)


def test_how_a_chain_is_nested_changes_no_bit():
    a, b = examples.drop_truncated(), group_advantage(ddof=1, epsilon=1e-4)
    c, d = examples.soften_negative_turns(), chain(clipped_surrogate(0.2, 0.2), kl_penalty_k3(0.1))
    batch = make_batch(3)
    left = run(method(chain(chain(a, b), chain(c, identity(), d)), _TOKEN_MEAN), batch)
    right = run(method(chain(identity(), a, chain(b, chain(c, d))), _TOKEN_MEAN), batch)
    assert_same(left, right)


def test_identity_passes_credit_on_untouched():
    credit, state, metrics = identity().credit((), "credit", "logprobs", "rewards", "masks")
    assert (credit, state, metrics, identity().needs, identity().init()) == ("credit", (), {}, frozenset(), ())


_TOKEN_MEAN = token_mean()
_CREDIT = (examples.format_bonus(0.5), group_advantage(ddof=0, epsilon=1e-6), examples.soften_negative_turns())
_LOSS = (clipped_surrogate(0.2, 0.2), kl_penalty_k3(0.1), examples.entropy_penalty(0.1))


@functools.cache
def _mixed(places):
    """The loss stages put before the credit stages of these numbers (3: after the last)."""
    order = [(at - 0.5, stage) for at, stage in zip(places, _LOSS)] + list(enumerate(_CREDIT))
    return method(chain(*(stage for _, stage in sorted(order, key=lambda pair: pair[0]))), _TOKEN_MEAN)


@pytest.mark.parametrize("places", [(0, 0, 0), (1, 2, 3), (0, 2, 2), (3, 1, 0)])
@settings(laws, max_examples=draws(4))
@given(batch=batches())
def test_loss_halves_commute_with_credit_halves(places, batch):
    ours, usual = run(_mixed(places), batch), run(_mixed((3, 3, 3)), batch)
    assert_same(ours.credit, usual.credit)
    assert_close(ours.gradients[0].policy, usual.gradients[0].policy, relative=1e-6)
    assert_close(ours.loss, usual.loss, relative=1e-6, floor=1)


def test_named_chain_prefixes_metrics_and_tells_twins_apart():
    twin = examples.soften_negative_turns()
    with pytest.raises(MethodError, match=r"\['softened'\].*named_chain"):
        run(complete(twin, twin), make_batch(0))
    metrics = run(complete(named_chain(("first", twin), ("then", twin))), make_batch(0)).metrics
    assert {"first/softened", "then/softened"} < set(metrics)
    nested = named_chain(("outer", named_chain(("inner", twin))))
    assert nested.stages[0].name == "outer/inner/soften_negative_turns"
    assert nested.stages[0].role is Role.RESHAPER


def test_named_chain_changes_no_number():
    batch = make_batch(1)
    plain, named = METHODS["grpo"], METHODS["grpo"].transform
    named = method(named_chain(("all", named)), METHODS["grpo"].reduction)
    ours, usual = run(named, batch), run(plain, batch)
    assert_same((ours.loss, ours.credit, ours.gradients), (usual.loss, usual.credit, usual.gradients))


@laws
@given(batch=batches())
def test_masked_keeps_what_the_stage_writes_only_where_the_predicate_holds(batch):
    without, everywhere, some = (run(a_method, batch).credit for a_method in _WITHOUT_EVERYWHERE_MASKED)
    inside = batch[2].turn == 0
    assert_same(some.advantages, jnp.where(inside, everywhere.advantages, without.advantages))
    assert_same(some.mask, without.mask)


_SOFT = examples.soften_negative_turns()
_WITHOUT_EVERYWHERE_MASKED = [
    complete(part) for part in (identity(), _SOFT, masked(_SOFT, lambda masks: masks.turn == 0))
]


def test_masked_filter_drops_only_the_members_chosen():
    _, _, masks = batch = make_batch(5, invalid=0.0)
    credit = run(complete(masked(examples.drop_truncated(), lambda masks: masks.condition == 1)), batch).credit
    assert_same(credit.valid, ~(masks.truncated & (masks.condition == 1)))


def test_masked_loss_half_counts_nothing_elsewhere():
    logprobs, rewards, masks = make_batch(2, invalid=0.0)
    stage = complete(masked(kl_penalty_k3(0.5), lambda masks: masks.condition == 1))
    ours, without = run(stage, (logprobs, rewards, masks)), run(complete(identity()), (logprobs, rewards, masks))
    everywhere = run(complete(kl_penalty_k3(0.5)), (logprobs, rewards, masks))
    chosen = (masks.condition == 1)[..., None]
    expected = jnp.where(chosen, everywhere.gradients[0].policy, without.gradients[0].policy)
    assert_close(ours.gradients[0].policy, expected, relative=1e-6)
    assert ours.metrics["kl"].count == (chosen & masks.trainable).sum()


def test_masked_goes_through_chain():
    def where(masks):
        return masks.condition == 1

    a, b = examples.drop_truncated(), examples.format_bonus(0.5)
    together, apart = masked(chain(a, b), where), chain(masked(a, where), masked(b, where))
    assert [stage.name for stage in together.stages] == [stage.name for stage in apart.stages]
    assert_same(run(complete(together), make_batch(6)).credit, run(complete(apart), make_batch(6)).credit)
    assert masked(identity(), where) == identity()


def test_token_predicate_of_a_stage_that_writes_members_is_refused():
    for stage in (examples.drop_truncated(), examples.format_bonus(0.5)):
        with pytest.raises(MethodError, match=r"belong to members.*\[p g t\].*\[p g\]"):
            run(complete(masked(stage, lambda masks: masks.turn == 0)), make_batch(0))


def test_masked_filter_mutes_only_the_tokens_chosen():
    logprobs, rewards, masks = make_batch(5, invalid=0.0)
    rewards = replace(rewards, turn_void=np.ones_like(rewards.turn_void))
    muted = masked(examples.mute_void_turns(), lambda masks: masks.turn == 1)
    credit = run(complete(muted), (logprobs, rewards, masks)).credit
    assert (masks.trainable & (masks.turn == 1)).any()
    assert_same(credit.mask, masks.trainable & (masks.turn != 1))
