"""Rows past the vocabulary change nothing, whatever they hold: the decoder without them is the judge."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.learner import create_state, from_optax, make_learner, make_supervised_step, state_shardings
from rlagents.methods.recipes import rc_grpo
from rlagents.model_passes import model_passes
from rlagents.models import logical_axes, token_log_probs
from rlagents.models.head import log_prob_and_entropy
from rlagents.models.modules import trunk
from rlagents.sampling import SamplingRule
from rlagents.sharding import single_device_mesh
from tests import toy_policy
from tests.effort import draws
from tests.models.tiny import (
    CONFIGS,
    GEMMA3,
    LLAMA,
    QWEN2,
    full_logits,
    random_params,
    random_sequences,
    relative_error,
)
from tests.oracles import decoder as oracle
from tests.sampling.support import CONFIG, KEYS, Script, make_params, make_sampler, play

PADDING = 5
TABLES = ("embedding", "head")


def padded(config, params, padding=PADDING):
    """The decoder with rows past its vocabulary that would win every draw, were they looked at."""
    noise = 50.0 * np.random.default_rng(9).normal(size=(padding, config.embed_dim)).astype(np.float32)
    tables = {name: jnp.concatenate([params[name], noise]) for name in TABLES if name in params}
    return config.replace(vocab_padding=padding), {**params, **tables}


def without(params, config):
    return {name: leaf[: config.vocab_size] if name in TABLES else leaf for name, leaf in params.items()}


def of_padding(params, config):
    return [params[name][config.vocab_size :] for name in TABLES if name in params]


@functools.partial(jax.jit, static_argnums=4)
def run(hidden, head, targets, temperature, chunk_tokens):
    return log_prob_and_entropy(hidden, head, targets, temperature, chunk_tokens, vocab_size=11)


@settings(max_examples=draws(40), deadline=None)
@given(
    seed=st.integers(0, 1000),
    padding=st.sampled_from([0, 1, 9]),
    chunk_tokens=st.sampled_from([1, 6, 100]),
    temperature=st.floats(0.3, 3.0),
)
def test_log_probs_and_entropies_are_those_of_the_cut_head(seed, padding, chunk_tokens, temperature):
    rng = np.random.default_rng(seed)
    hidden, head = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 3, 8), (11 + padding, 8)))
    head[11:] *= 50
    targets = rng.integers(0, 11, (2, 3))
    found = run(hidden, head, targets, temperature, chunk_tokens)
    wanted = oracle.log_prob_and_entropy(hidden.reshape(-1, 8), head[:11], targets.reshape(-1), temperature)
    for ours, theirs in zip(found, wanted):
        np.testing.assert_allclose(ours.reshape(-1), theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_log_probs_and_gradients_are_those_without_padding(name):
    config, sequences = CONFIGS[name], random_sequences(CONFIGS[name], seed=1)
    params = random_params(config)

    def step(config, params):
        def loss(params):
            log_prob, entropy = token_log_probs(config, params, sequences, 0.7, head_chunk_tokens=4)
            return jnp.sum(log_prob) + 0.3 * jnp.sum(entropy), (log_prob, entropy)

        return jax.jit(jax.value_and_grad(loss, has_aux=True))(params)

    value, gradient = step(*padded(config, params))
    wanted, without_padding = step(config, params)
    assert relative_error(value, wanted) < 1e-6
    assert relative_error(without(gradient, config), without_padding) < 1e-5
    for rows in of_padding(gradient, config):
        np.testing.assert_array_equal(rows, 0.0)


def test_logits_of_padding_are_below_all_and_a_padding_token_is_none():
    config, params = padded(LLAMA, random_params(LLAMA))
    tokens = np.random.default_rng(0).integers(0, LLAMA.vocab_size, (2, 9))
    found, wanted = full_logits(config, params, tokens), full_logits(LLAMA, random_params(LLAMA), tokens)
    np.testing.assert_allclose(found[..., : LLAMA.vocab_size], wanted, rtol=1e-6, atol=1e-6)
    assert found.shape[-1] == LLAMA.vocab_size + PADDING
    assert np.all(found[..., LLAMA.vocab_size :] < -1e29)
    inside, outside = trunk(config, params).embed(jnp.asarray([LLAMA.vocab_size - 1, LLAMA.vocab_size]))
    assert np.all(np.isfinite(inside))
    assert np.all(np.isnan(outside))


@pytest.mark.parametrize("rule", [SamplingRule(0.0), SamplingRule(1.3, 28, 0.999), SamplingRule(9.0, 99)])
def test_the_sampler_draws_what_it_draws_without_padding(rule):
    scripts = [Script([[1, 2, 3], [1, 2, 4]], KEYS._replace(stream=i), [[5, 6]], 6) for i in range(3)]
    config, params = padded(CONFIG, make_params())
    found, wanted = (
        play(make_sampler(rule=rule, **model), scripts) for model in ({"config": config, "params": params}, {})
    )
    for ours, theirs in zip(found, wanted, strict=True):
        assert [member.sampled for member in ours] == [member.sampled for member in theirs]
        for one, other in zip(ours, theirs, strict=True):
            pairs = zip(one.turns, other.turns, strict=True)
            assert all(np.allclose(a.log_probs, b.log_probs, rtol=0, atol=1e-5) for (_, a), (_, b) in pairs)


def test_the_sampler_refuses_a_padding_token():
    config, params = padded(CONFIG, make_params())
    sampler = make_sampler(config=config, params=params)
    with pytest.raises(ValueError, match=r"token id 29 is outside the vocabulary \[0, 29\)"):
        sampler.open_group([[1, 29]], KEYS)


SGD = from_optax(optax.sgd(1.0), optax.constant_schedule(1.0))


@functools.cache
def batch():
    return toy_policy.random_batch(3, p=4, g=3, l=6, t=8, vocab=QWEN2.vocab_size)


def after_a_step(config, params, reinforced):
    """Parameters after one step of SGD at rate 1: of GRPO with its KL, or of imitation."""
    mesh, method = single_device_mesh(), rc_grpo()
    method_state = method.init() if reinforced else ()
    shardings = state_shardings(params, SGD, method_state, logical_axes(config), mesh)
    copy = jax.tree.map(jnp.copy, params)
    state = create_state(copy, SGD, method_state, jax.random.key(0), shardings)
    passes = model_passes(config, 1.0, loss_chunk_tokens=6)
    if not reinforced:
        step = make_supervised_step(passes, SGD, shardings, prompts_per_micro_batch=2)
        return step(state, batch().sequences, batch().masks)[0].params
    learner = make_learner(method, passes, SGD, shardings, prompts_per_micro_batch=2)
    facts = learner.prepare(state.params, jax.tree.map(lambda x: 0.9 * x, params), batch())
    state, credit, _ = learner.credit(state, batch(), facts)
    return learner.step(state, batch(), facts, credit, learner.schedule[0])[0].params


@pytest.mark.parametrize(("reinforced", "tied"), [(True, True), (False, False)], ids=["rc_grpo, tied", "supervised"])
def test_a_step_of_training_leaves_padding_alone_and_all_else_as_without(reinforced, tied):
    config = QWEN2.replace(tie_embeddings=tied)
    params = random_params(config)
    larger, more = padded(config, params)
    found, wanted = after_a_step(larger, more, reinforced), after_a_step(config, params, reinforced)
    # Of the updates, which are the gradients, not of the weights, which are far larger.
    ours, theirs = jax.tree.map(jnp.subtract, (without(found, config), wanted), (without(more, config), params))
    assert relative_error(ours, theirs) < 1e-5
    for ours, before in zip(of_padding(found, config), of_padding(more, config), strict=True):
        np.testing.assert_array_equal(ours, before)


@pytest.mark.parametrize("padding", [-1, 1.0, True, "2"])
def test_padding_is_a_whole_number_of_rows(padding):
    with pytest.raises(ValueError, match=r"DecoderConfig\(vocab_padding=.*expected a whole number of rows"):
        GEMMA3.replace(vocab_padding=padding)
