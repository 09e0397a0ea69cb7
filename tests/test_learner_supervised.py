"""The supervised step learns a pattern from the tokens its mask shows, and nothing from the others."""

import dataclasses

import jax
import numpy as np
import optax

from rlagents.learner import create_state, make_optimizer, make_supervised_step, state_shardings, whole_groups
from rlagents.sharding import single_device_mesh
from rlagents.types import Kind
from tests import toy_policy


def counting_batch(seed):
    """Model tokens count upwards by 3 modulo 11; tool tokens between them are noise."""
    batch = toy_policy.random_batch(seed, p=8, g=1, t=12)
    kind, tokens = np.array(batch.masks.kind), np.array(batch.sequences.tokens)
    for t in range(1, tokens.shape[-1]):
        follows = (tokens[..., t - 1] * 3 + 1) % toy_policy.VOCAB
        tokens[..., t] = np.where(kind[..., t] == Kind.MODEL, follows, tokens[..., t])
    return dataclasses.replace(batch, sequences=dataclasses.replace(batch.sequences, tokens=tokens))


def last_token_only(params, sequences):
    """A bigram model: the toy without its prefix and its past."""
    logits = params["embedding"] @ params["head"]
    log_probs = jax.nn.log_softmax(logits)
    chosen = log_probs[sequences.tokens[..., :-1], sequences.tokens[..., 1:]]
    real = np.arange(1, sequences.tokens.shape[-1]) < sequences.length[..., None]
    log_prob = jax.numpy.pad(jax.numpy.where(real, chosen, 0), ((0, 0), (0, 0), (1, 0)))
    return log_prob, jax.numpy.zeros_like(log_prob)


def test_learns_what_the_model_wrote_and_nothing_else():
    optimizer = make_optimizer(optax.constant_schedule(0.1))
    params = toy_policy.init_params()
    shardings = state_shardings(params, optimizer, (), toy_policy.AXES, single_device_mesh())
    step = make_supervised_step(whole_groups(last_token_only), optimizer, shardings, prompts_per_micro_batch=4)
    state = create_state(params, optimizer, (), jax.random.key(0), shardings)
    losses = []
    for i in range(60):
        batch = counting_batch(i)
        state, report = step(state, batch.sequences, batch.masks)
        losses.append(float(report.loss))
    assert losses[0] > 1.5
    assert losses[-1] < 0.1
    held_out = counting_batch(99)
    log_prob, _ = last_token_only(state.params, held_out.sequences)
    tool = (held_out.masks.kind == Kind.TOOL) & held_out.masks.valid[..., None]
    assert np.mean(log_prob[held_out.masks.trainable]) > -0.1
    assert np.mean(log_prob[tool]) < -2.0, "noise was never a target"


def test_counts_what_it_saw():
    optimizer = make_optimizer(optax.constant_schedule(0.1))
    params = toy_policy.init_params()
    shardings = state_shardings(params, optimizer, (), toy_policy.AXES, single_device_mesh())
    step = make_supervised_step(whole_groups(toy_policy.apply), optimizer, shardings, prompts_per_micro_batch=4)
    batch = counting_batch(3)
    _, report = step(create_state(params, optimizer, (), jax.random.key(0), shardings), batch.sequences, batch.masks)
    model = np.sum((batch.masks.kind == Kind.MODEL) & batch.masks.valid[..., None])
    total = batch.sequences.length.sum() + batch.sequences.prefix_length.sum()
    assert {k: int(v) for k, v in report.counts.items()} == {
        "tokens_trained": model,
        "tokens_model": model,
        "tokens_total": total,
    }
