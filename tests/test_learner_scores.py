"""What a learner looks at apart from learning is what the model says, however it computes batches."""

import jax
import numpy as np
import optax
import pytest

from rlagents.learner import from_optax, make_learner, make_packed_learner, member_slices, state_shardings, whole_groups
from rlagents.methods.recipes import grpo
from rlagents.sharding import make_mesh
from tests import toy_policy

SGD = from_optax(optax.sgd(1.0), optax.constant_schedule(1.0))
PASSES = {
    "whole": whole_groups(toy_policy.apply),
    "sliced": member_slices(toy_policy.prefix_kv, toy_policy.member_scores, members=1),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("devices", [1, 2])
def test_some_prompts_are_scored_as_the_model_scores_them(packed, passes, devices):
    method, params = grpo(kl_coefficient=0.0), toy_policy.init_params()
    mesh = make_mesh(data=devices, devices=jax.devices()[:devices])
    shardings = state_shardings(params, SGD, method.init(), toy_policy.AXES, mesh)
    options = {"prompts_per_micro_batch": 4}
    if packed:
        made = make_packed_learner(
            method, PASSES[passes], SGD, shardings, prefix_buckets=(5,), member_buckets=(9,), **options
        )
    else:
        made = make_learner(method, PASSES[passes], SGD, shardings, **options)
    sequences = jax.tree.map(lambda leaf: leaf[:2], toy_policy.random_batch(3, p=4).sequences)
    for found, wanted in zip(made.scores(params, sequences), toy_policy.apply(params, sequences), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
