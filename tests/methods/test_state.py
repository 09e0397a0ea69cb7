"""What a method remembers is a pytree of arrays that a checkpoint gives back, and the next batch goes on from there."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlagents.checkpoints import Checkpoints, RunRecord
from rlagents.learner import abstract_state, create_state, make_optimizer, state_shardings
from rlagents.sharding import make_mesh
from tests import toy_policy
from tests.methods.batches import make_batch
from tests.methods.harness import assert_same
from tests.methods.table import METHODS

OPTIMIZER = make_optimizer(optax.constant_schedule(0.1))
REMEMBERING = [name for name, method in METHODS.items() if jax.tree.leaves(method.init())]


def test_every_state_is_a_pytree_of_arrays_and_some_methods_have_one():
    assert {"adaptive_kl_penalty", "penalty with memory"} <= set(REMEMBERING)
    for method in METHODS.values():
        assert all(isinstance(leaf, jax.Array | np.ndarray) for leaf in jax.tree.leaves(method.init()))


@pytest.mark.parametrize("name", REMEMBERING)
def test_a_method_goes_on_from_a_checkpoint_as_if_never_interrupted(tmp_path, name):
    method = METHODS[name]
    batches = [jax.tree.map(jnp.asarray, make_batch(seed, spread=1.0)) for seed in (0, 1)]
    after_one = method.credit(method.init(), *batches[0])[1]
    after_two = method.credit(after_one, *batches[1])[1]
    assert not all(map(np.array_equal, jax.tree.leaves(after_one), jax.tree.leaves(after_two)))

    params, mesh = toy_policy.init_params(), make_mesh(fsdp=1, tensor=1, devices=jax.devices()[:1])
    shardings = state_shardings(params, OPTIMIZER, method.init(), toy_policy.AXES, mesh)
    # Made on its own: a checkpoint holds what training made, and its target is made before anything was trained.
    state = create_state(params, OPTIMIZER, method.init(), jax.random.key(0), shardings)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, dataclasses.replace(state, method_state=after_one), RunRecord({"prompts": 3}))
    with Checkpoints(tmp_path) as checkpoints:
        restored, _ = checkpoints.restore(abstract_state(params, OPTIMIZER, method.init(), shardings))
    assert_same(restored.method_state, after_one)
    assert_same(method.credit(restored.method_state, *batches[1])[1], after_two)
