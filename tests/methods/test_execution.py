"""How methods run: jitted as eager, low precision in and float32 out, sharded without talk, and traced once."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rlagents.methods import MethodError
from rlagents.numerics import turn_token_counts, turns_to_tokens
from tests.methods.batches import make_batch
from tests.methods.harness import assert_close, assert_same, run, whole
from tests.methods.laws import (
    assert_bfloat16_in_float32_out,
    assert_sharded_credit_equals_single,
    assert_sharded_loss_equals_single,
    assert_state_comes_back_as_it_went_in,
    assert_traced_once,
    collectives,
)
from tests.methods.table import BATCH_GLOBAL, METHODS, RECIPES

every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
every_recipe = pytest.mark.parametrize("method", RECIPES.values(), ids=RECIPES)


@every_method
def test_eager_equals_jitted(method):
    batch = make_batch(11)
    eager = jax.tree.map(np.asarray, whole(method, *jax.tree.map(jnp.asarray, batch)))
    compiled = run(method, batch)
    assert_close(eager.credit, compiled.credit, relative=1e-6)
    assert_close(eager.gradients[0].policy, compiled.gradients[0].policy, relative=1e-6)
    assert_close((eager.loss, eager.metrics, eager.state), (compiled.loss, compiled.metrics, compiled.state), floor=1)


@every_method
def test_bfloat16_in_float32_out(method):
    assert_bfloat16_in_float32_out(method)


@every_method
def test_state_comes_back_as_it_went_in_so_that_the_next_step_is_not_traced_again(method):
    assert_state_comes_back_as_it_went_in(method)


@pytest.mark.parametrize("name", ["grpo", "penalty with memory"])
def test_traced_once_whatever_the_batch_holds(name):
    assert_traced_once(METHODS[name])


@pytest.mark.parametrize("name", METHODS)
def test_credit_halves_sharded_along_prompts_equal_single_and_do_not_talk(name):
    """But for the lines that compare prompts: these talk, and are equal all the same."""
    assert_sharded_credit_equals_single(METHODS[name], talks=name in BATCH_GLOBAL)


@every_recipe
def test_sharded_loss_and_gradient_equal_single(method):
    assert_sharded_loss_equals_single(method)


def test_maps_between_turns_and_tokens_do_not_talk_when_sharded():
    by_prompt = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
    _, rewards, masks = jax.device_put(make_batch(14, (8, 3, 9, 3)), by_prompt)

    def there_and_back(scores, masks):
        return turns_to_tokens(scores, masks.turn), turn_token_counts(masks.turn, 3, where=masks.trainable)

    compiled = jax.jit(there_and_back).lower(rewards.turn_scores, masks).compile()
    assert not collectives(compiled)


@every_method
def test_a_method_reads_the_facts_it_declares_and_no_others(method):
    logprobs, rewards, masks = jax.tree.map(jnp.asarray, make_batch(15))
    usual = whole(method, logprobs, rewards, masks)
    undeclared = {"old_entropy", "reference", "rollout"} - method.needs
    spared = whole(method, replace(logprobs, **dict.fromkeys(undeclared)), rewards, masks)
    assert_same((spared.loss, spared.credit), (usual.loss, usual.credit))
    for field in method.needs:
        with pytest.raises(MethodError, match=f"stage '.*' reads LogProbs.{field}, which is None: .*pass"):
            method(replace(logprobs, **{field: None}), rewards, masks)


@every_method
def test_calling_a_method_is_its_two_halves_in_a_row(method):
    batch = make_batch(16)
    loss, metrics = method(*batch)
    both = run(method, batch)
    assert_close(loss, both.loss, relative=1e-6, floor=1)
    assert_close(metrics, {name: mean.value for name, mean in both.metrics.items()}, floor=1)
    assert {"outcome", "members_kept", "tokens_kept", "entropy"} < set(metrics)
