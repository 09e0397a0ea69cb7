"""How methods run: jitted as eager, low precision in and float32 out, sharded without talk, and traced once."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rlagents.methods import MethodError
from rlagents.numerics import turn_token_counts, turns_to_tokens
from tests.methods.batches import make_batch
from tests.methods.harness import assert_close, assert_same, jitted, run, whole
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
    logprobs, rewards, masks = make_batch(12)

    def narrow(tree):
        return jax.tree.map(lambda x: x.astype(jnp.bfloat16) if x.dtype == np.float32 else x, tree)

    low = run(method, (narrow(logprobs), narrow(rewards), masks))
    for leaf in jax.tree.leaves((low.loss, low.credit, low.state, low.measures, low.metrics)):
        assert leaf.dtype in (np.float32, np.bool_)
    rounded = jax.tree.map(
        lambda x: x.astype(np.float32) if x.dtype == jnp.bfloat16 else x, narrow((logprobs, rewards))
    )
    assert_same(low.credit, run(method, (*rounded, masks)).credit)


@every_method
def test_state_comes_back_as_it_went_in_so_that_the_next_step_is_not_traced_again(method):
    def step(state, logprobs, rewards, masks):
        return method.credit(state, logprobs, rewards, masks)[1]

    state = jax.tree.map(jnp.asarray, method.init())
    after = jax.eval_shape(step, state, *make_batch(0))
    assert jax.tree.structure(after) == jax.tree.structure(state)
    for new, old in zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True):
        assert (new.shape, new.dtype, new.weak_type) == (old.shape, old.dtype, old.weak_type)


@pytest.mark.parametrize("name", ["grpo", "penalty with memory"])
def test_traced_once_whatever_the_batch_holds(name):
    method, traced = METHODS[name], []

    def step(state, logprobs, rewards, masks):
        traced.append(1)
        credit, state, _ = method.credit(state, logprobs, rewards, masks)
        return method.loss(state, logprobs, credit, masks, method.measures(credit, masks))[0], state

    step = jax.jit(step)
    state = jax.tree.map(jnp.asarray, method.init())
    for seed, invalid in enumerate((0.0, 0.5, 1.0)):
        _, state = step(state, *jax.tree.map(jnp.asarray, make_batch(seed, invalid=invalid, spread=seed)))
    assert len(traced) == 1


def _collectives(compiled):
    return re.findall(
        r"\b(all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)", str(compiled.as_text())
    )


def _one_and_eight_devices():
    devices = np.array(jax.devices())
    assert len(devices) == 8, "tests/conftest.py makes eight CPU devices"
    by_prompt = NamedSharding(Mesh(devices, ("data",)), PartitionSpec("data"))
    batch = jax.tree.map(jnp.asarray, make_batch(13, (8, 3, 9, 3), rewards="continuous"))
    return batch, jax.device_put(batch, by_prompt)


@pytest.mark.parametrize("name", METHODS)
def test_credit_halves_sharded_along_prompts_equal_single_and_do_not_talk(name):
    """But for the lines that compare prompts: these talk, and are equal all the same."""
    method = METHODS[name]
    batch, spread = _one_and_eight_devices()

    def credit(logprobs, rewards, masks):
        return method.credit(method.init(), logprobs, rewards, masks)[0]

    compiled = jax.jit(credit, compiler_options={"xla_backend_optimization_level": 0}).lower(*spread).compile()
    assert bool(_collectives(compiled)) == (name in BATCH_GLOBAL)
    assert_close(compiled(*spread), credit(*batch), relative=1e-6)


@every_recipe
def test_sharded_loss_and_gradient_equal_single(method):
    batch, spread = _one_and_eight_devices()
    whole_compiled = jax.jit(lambda *b: whole(method, *b)).lower(*spread).compile()
    assert _collectives(whole_compiled)
    ours, single = whole_compiled(*spread), jitted(whole, method)(*batch)
    assert_close(ours.loss, single.loss, relative=1e-6, floor=1)
    assert_close(ours.gradients[0].policy, single.gradients[0].policy, relative=1e-5)


def test_maps_between_turns_and_tokens_do_not_talk_when_sharded():
    by_prompt = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
    _, rewards, masks = jax.device_put(make_batch(14, (8, 3, 9, 3)), by_prompt)

    def there_and_back(scores, masks):
        return turns_to_tokens(scores, masks.turn), turn_token_counts(masks.turn, 3, where=masks.trainable)

    compiled = jax.jit(there_and_back).lower(rewards.turn_scores, masks).compile()
    assert not _collectives(compiled)


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
