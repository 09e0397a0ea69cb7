"""The real decoder over 8 devices: the same update, and nothing that should be split is whole anywhere."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlagents import models
from rlagents.learner import create_state, from_optax, make_learner, member_slices, state_shardings, whole_groups
from rlagents.methods.recipes import grpo
from rlagents.sharding import make_mesh, shard_batch, single_device_mesh
from tests import toy_policy

VOCAB = 1004
CONFIG = models.DecoderConfig(
    vocab_size=VOCAB, embed_dim=40, mlp_dim=48, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=8
)
TEMPERATURE = 0.7
CHUNK_TOKENS = 32
SGD = from_optax(optax.sgd(1.0), optax.constant_schedule(1.0))
METHOD = grpo()
BATCH = toy_policy.random_batch(1, p=16, g=4, l=8, t=12, vocab=VOCAB)
MICRO_BATCH = 8


def whole():
    return whole_groups(
        lambda params, sequences: models.token_log_probs(
            CONFIG, params, sequences, TEMPERATURE, head_chunk_tokens=CHUNK_TOKENS
        )
    )


def sliced():
    return member_slices(
        functools.partial(models.prefix_kv, CONFIG),
        lambda params, kv, sequences: models.member_log_probs(
            CONFIG, params, kv, sequences, TEMPERATURE, head_chunk_tokens=CHUNK_TOKENS
        ),
        members=2,
    )


@functools.cache
def host_params():
    """Weights of the policy and of the reference."""
    make = jax.jit(functools.partial(models.init_params, CONFIG))
    return jax.device_get((make(jax.random.key(0)), make(jax.random.key(1))))


@functools.cache
def one_step(mesh_shape, passes):
    """A whole training step (facts, credit, SGD update) of rate 1: the parameters differ by minus the gradient."""
    mesh = make_mesh(**dict(mesh_shape)) if mesh_shape else single_device_mesh()
    abstract = jax.eval_shape(functools.partial(models.init_params, CONFIG), jax.random.key(0))
    shardings = state_shardings(abstract, SGD, METHOD.init(), models.logical_axes(CONFIG), mesh)
    before, reference = (jax.device_put(params, shardings.params) for params in host_params())
    learner = make_learner(METHOD, passes(), SGD, shardings, prompts_per_micro_batch=MICRO_BATCH)
    batch = shard_batch(BATCH, mesh)
    state = create_state(before, SGD, METHOD.init(), jax.random.key(0), shardings)
    facts = learner.prepare(state.params, reference, batch)
    state, credit, _ = learner.credit(state, batch, facts)
    program = learner.step.lower(state, batch, facts, credit, learner.schedule[0]).compile()
    after, report = program(state, batch, facts, credit, learner.schedule[0])
    return after, report, facts, program.as_text()


def close(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert np.max(np.abs(x - y)) <= 1e-5 * np.max(np.abs(y))


SHARDED = (("fsdp", 4), ("tensor", 2))


@pytest.mark.parametrize(("mesh", "passes"), [(SHARDED, whole), (None, sliced)], ids=["sharded", "member-slices"])
def test_equals_the_plain_step_on_one_device(mesh, passes):
    after, report, facts, _ = one_step(None, whole)
    other_after, other_report, other_facts, _ = one_step(mesh, passes)
    close(other_facts.reference, facts.reference)
    close(other_report.loss, report.loss)
    close(other_after.params, after.params)
    before = host_params()[0]
    gradient = jax.tree.map(lambda a, b: np.asarray(a) - b, after.params, before)
    close(jax.tree.map(lambda a, b: np.asarray(a) - b, other_after.params, before), gradient)
    assert float(report.metrics["ratio"].value) == float(other_report.metrics["ratio"].value) == 1.0
    assert float(report.gradient_norm) > 0.1


def test_no_device_holds_the_parameters():
    """Neither at rest nor inside the step: layers are gathered one at a time, never stacked."""
    after, _, _, program = one_step(SHARDED, whole)
    leaves = jax.tree.leaves(after.params)
    held = sum(leaf.addressable_shards[0].data.nbytes for leaf in leaves)
    assert held <= sum(leaf.nbytes for leaf in leaves) / 8 * 1.1
    stacked = {tuple(leaf.shape) for leaf in jax.tree.leaves(after.params["layers"]) if leaf.ndim > 2}
    assert stacked
    assert not stacked & array_shapes(program)
    assert stacked & array_shapes(one_step(None, whole)[-1]), "they are found where they are whole"


def test_no_device_holds_the_logits():
    """Not of its own share of a micro-batch, let alone of all: never more rows than a chunk, half a vocabulary wide.

    A chunk at most: XLA gathers the gradient of its logits from all prompts for the gradient of the head.
    """
    program = one_step(SHARDED, whole)[-1]
    own_tokens = MICRO_BATCH // 4 * 4 * 12
    assert most_rows_of_logits(program) <= CHUNK_TOKENS < own_tokens
    assert not [shape for shape in array_shapes(program) if VOCAB in shape]

    def naive(params, hidden):
        return jnp.sum(jax.nn.log_softmax(hidden @ params["embedding"].T)[..., 0])

    hidden = jnp.zeros((MICRO_BATCH // 4, 4, 12, CONFIG.embed_dim))
    params = {"embedding": jnp.zeros((VOCAB, CONFIG.embed_dim))}
    program = jax.jit(jax.grad(naive)).lower(params, hidden).compile().as_text()
    assert most_rows_of_logits(program) >= own_tokens


def test_activations_stay_with_their_prompts():
    """Hidden states ``[p g t d]`` are split by prompts, whole in ``d``: left alone, XLA splits ``d`` in every layer."""
    assert (MICRO_BATCH // 4, 4, 12, CONFIG.embed_dim) in array_shapes(one_step(SHARDED, whole)[-1])


def array_shapes(program):
    return {tuple(map(int, shape.split(","))) for shape in re.findall(r"\b(?:f32|bf16)\[([\d,]+)\]", program)}


def most_rows_of_logits(program):
    """Rows of the largest array with an axis of the vocabulary or half of it, the embedding and its quarters aside."""
    rows = {np.prod(shape) // size for shape in array_shapes(program) for size in (VOCAB, VOCAB // 2) if size in shape}
    return max(rows - {CONFIG.embed_dim, CONFIG.embed_dim // 4})
