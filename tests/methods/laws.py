"""Laws of execution, as assertions about one method: for the table's lines and for random compositions alike."""

import re

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rlagents.methods import Method
from tests.methods.batches import make_batch
from tests.methods.harness import assert_close, assert_same, jitted, run, whole


def collectives(compiled) -> list[str]:
    """The operations by which devices talk, in a compiled program."""
    return re.findall(
        r"\b(all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)", str(compiled.as_text())
    )


def one_and_eight_devices():
    """A batch of eight prompts, whole and with one prompt on each device."""
    devices = np.array(jax.devices())
    assert len(devices) == 8, "tests/conftest.py makes eight CPU devices"
    by_prompt = NamedSharding(Mesh(devices, ("data",)), PartitionSpec("data"))
    batch = jax.tree.map(jnp.asarray, make_batch(13, (8, 3, 9, 3), rewards="continuous"))
    return batch, jax.device_put(batch, by_prompt)


def assert_sharded_credit_equals_single(method: Method, *, talks: bool):
    """Along prompts; ``talks`` says whether the credit half compares them, so that devices must talk."""
    batch, spread = one_and_eight_devices()

    def credit(logprobs, rewards, masks):
        return method.credit(method.init(), logprobs, rewards, masks)[0]

    compiled = jax.jit(credit, compiler_options={"xla_backend_optimization_level": 0}).lower(*spread).compile()
    assert bool(collectives(compiled)) == talks
    assert_close(compiled(*spread), credit(*batch), relative=1e-6)


def assert_sharded_loss_equals_single(method: Method):
    """The loss sums over all prompts, and talks; its value and gradient are those of one device."""
    batch, spread = one_and_eight_devices()
    whole_compiled = jax.jit(lambda *b: whole(method, *b)).lower(*spread).compile()
    assert collectives(whole_compiled)
    ours, single = whole_compiled(*spread), jitted(whole, method)(*batch)
    assert_close(ours.loss, single.loss, relative=1e-6, floor=1)
    assert_close(ours.gradients[0].policy, single.gradients[0].policy, relative=1e-5)


def assert_bfloat16_in_float32_out(method: Method):
    """Facts are widened on entry, and no further rounding happens: equal bits from what was rounded before."""
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


def assert_state_comes_back_as_it_went_in(method: Method):
    """Same structure, shapes and types, all arrays: nothing to trace again, and nothing a checkpoint cannot hold."""

    def step(state, logprobs, rewards, masks):
        return method.credit(state, logprobs, rewards, masks)[1]

    assert all(isinstance(leaf, jax.Array | np.ndarray) for leaf in jax.tree.leaves(method.init()))
    state = jax.tree.map(jnp.asarray, method.init())
    after = jax.eval_shape(step, state, *make_batch(0))
    assert jax.tree.structure(after) == jax.tree.structure(state)
    for new, old in zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True):
        assert (new.shape, new.dtype, new.weak_type) == (old.shape, old.dtype, old.weak_type)


def assert_traced_once(method: Method):
    """Three batches, from full to empty, and the state of each handed to the next: one program."""
    traced = []

    def step(state, logprobs, rewards, masks):
        traced.append(1)
        credit, state, _ = method.credit(state, logprobs, rewards, masks)
        return method.loss(state, logprobs, credit, masks, method.measures(credit, masks))[0], state

    step = jax.jit(step, compiler_options={"xla_backend_optimization_level": 0})
    state = jax.tree.map(jnp.asarray, method.init())
    for seed, invalid in enumerate((0.0, 0.5, 1.0)):
        _, state = step(state, *jax.tree.map(jnp.asarray, make_batch(seed, invalid=invalid, spread=seed)))
    assert len(traced) == 1
