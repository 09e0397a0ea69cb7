"""Groups with a shared prefix against the plain computation, member by member."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlagents.models import DecoderConfig, init_params, member_log_probs, prefix_kv, token_log_probs
from rlagents.models.blockwise import blockwise
from rlagents.types import Sequences
from tests.models.reference import reference_log_probs
from tests.models.tiny import GEMMA3, LLAMA, random_params, random_sequences, relative_error

TEMPERATURE = 0.7
WEIGHTS = np.random.default_rng(0).normal(size=(2, 2, 3, 6)).astype(np.float32)
"""A weight of its own for every log-prob and entropy."""


def weighted(outputs, weights=WEIGHTS):
    return jnp.sum(weights[0] * outputs[0] + weights[1] * outputs[1])


class Case:
    """A decoder with weights and ragged sequences, and the results that several tests look at."""

    def __init__(self, config: DecoderConfig):
        self.config = config
        self.params = random_params(config)
        self.sequences = random_sequences(config, seed=3)

        def loss(params, weights):
            outputs = token_log_probs(config, params, self.sequences, TEMPERATURE)
            return weighted(outputs, weights), outputs

        self.run = jax.jit(jax.value_and_grad(loss, has_aux=True))
        (self.loss, self.outputs), self.gradient = self.run(self.params, WEIGHTS)


@pytest.fixture(scope="module")
def gemma3():
    return Case(GEMMA3)


@pytest.fixture(scope="module")
def mixed():
    """What the other families have, all at once: scaled rope, grouped heads, untied head, biases, qk-norm."""
    return Case(LLAMA.replace(qkv_bias=True, qk_norm=True))


@pytest.mark.parametrize("name", ["gemma3", "mixed"])
def test_values_and_gradients_equal_unshared(name, request):
    case = request.getfixturevalue(name)

    def loss(params):
        outputs = reference_log_probs(case.config, params, case.sequences, TEMPERATURE)
        return weighted(outputs), outputs

    (value, outputs), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(case.params)
    assert relative_error(case.outputs, outputs) < 1e-5
    assert relative_error(case.loss, value) < 1e-5
    assert relative_error(case.gradient, gradient) < 1e-5


def test_split_by_members_equals_whole(mixed):
    case, sequences = mixed, mixed.sequences

    @jax.jit
    def split(params):
        def prefix_pass(params):
            return prefix_kv(case.config, params, sequences.prefix, sequences.prefix_length)

        kv, pull = jax.vjp(prefix_pass, params)
        total, d_params, d_kv = 0.0, jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, kv)
        for members in (slice(0, 1), slice(1, 3)):
            part = sequences.replace(tokens=sequences.tokens[:, members], length=sequences.length[:, members])

            def loss(params, kv, part=part, members=members):
                outputs = member_log_probs(case.config, params, kv, part, TEMPERATURE)
                return weighted(outputs, WEIGHTS[:, :, members])

            value, more = jax.value_and_grad(loss, (0, 1))(params, kv)
            total += value
            d_params, d_kv = jax.tree.map(jnp.add, (d_params, d_kv), more)
        return total, jax.tree.map(jnp.add, d_params, pull(d_kv)[0])

    assert relative_error(split(case.params), (case.loss, case.gradient)) < 1e-5


def test_nothing_at_the_first_token_nor_after_the_last(gemma3):
    step, length = np.arange(6), np.asarray(gemma3.sequences.length)
    inside = (step > 0) & (step < length[..., None])
    for output in gemma3.outputs:
        np.testing.assert_array_equal(np.asarray(output) != 0, inside)
    # Not even NaN flows back from there.
    _, gradient = gemma3.run(gemma3.params, jnp.where(inside, WEIGHTS, jnp.nan))
    jax.tree.map(np.testing.assert_array_equal, gradient, gemma3.gradient)


def test_padding_chunks_blocks_and_rematerialisation_change_nothing(gemma3):
    def pad(x, more):
        # Not even a token: what is in the padding must not matter.
        return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, more)], constant_values=10**6)

    sequences = gemma3.sequences
    padded = sequences.replace(prefix=pad(sequences.prefix, 3), tokens=pad(sequences.tokens, 2))

    @jax.jit
    @jax.value_and_grad
    def run(params):
        outputs = token_log_probs(
            gemma3.config,
            params,
            padded,
            TEMPERATURE,
            head_chunk_tokens=13,
            backend=blockwise(1, least_positions=3),
            layer_chunk_tokens=7,
            remat_policy=jax.checkpoint_policies.nothing_saveable,
        )
        return weighted([x[..., :6] for x in outputs])

    assert relative_error(run(gemma3.params), (gemma3.loss, gemma3.gradient)) < 1e-5


def test_a_log_prob_depends_on_its_own_past_and_on_nothing_else():
    p, g, l, t = 2, 2, 4, 5  # noqa: E741
    # A vocabulary in which every token of the batch is another one, so that the gradient with respect to a row of the
    # embedding is the gradient with respect to one input.
    config = LLAMA.replace(vocab_size=p * (l + g * t))
    rows = np.arange(config.vocab_size)
    prefix, tokens = rows[: p * l].reshape(p, l), rows[p * l :].reshape(p, g, t)
    prefix_length, length = np.array([4, 2]), np.array([[5, 5], [5, 3]])
    sequences = Sequences(*(jnp.asarray(x) for x in (prefix, prefix_length, tokens, length)))
    params = random_params(config)

    def log_prob(embedding):
        return token_log_probs(config, params | {"embedding": embedding}, sequences, 1.0)[0]

    influence = np.abs(jax.jit(jax.jacrev(log_prob))(params["embedding"])).sum(-1)
    for i, j, k in np.ndindex(p, g, t):
        past = {*prefix[i, : prefix_length[i]], *tokens[i, j, :k]} if 0 < k < length[i, j] else set()
        assert set(np.flatnonzero(influence[i, j, k])) == past


def test_program_does_not_grow_with_depth():
    def equations(num_layers):
        config = LLAMA.replace(num_layers=num_layers)
        sequences = random_sequences(config, seed=0)
        params = jax.eval_shape(lambda: init_params(config, jax.random.key(0)))
        gradient = jax.grad(lambda params: weighted(token_log_probs(config, params, sequences, 1.0)))
        return str(jax.make_jaxpr(gradient)(params)).count(" = ")

    assert equations(2) == equations(9)


def test_no_prefix_and_a_single_token_are_sequences_too():
    params, sequences = random_params(LLAMA), random_sequences(LLAMA, seed=0)
    run = jax.jit(lambda params, sequences: token_log_probs(LLAMA, params, sequences, 1.0))
    unused = sequences.replace(prefix_length=jnp.zeros(2, jnp.int32))
    absent = unused.replace(prefix=sequences.prefix[:, :0])
    assert relative_error(run(params, absent), run(params, unused)) < 1e-5
    alone = sequences.replace(tokens=sequences.tokens[:, :, :1], length=jnp.ones((2, 3), jnp.int32))
    assert all(jnp.all(output == 0) and output.shape == (2, 3, 1) for output in run(params, alone))


def test_bfloat16_weights_give_float32_results_close_to_float32s(gemma3):
    config = GEMMA3.replace(param_dtype=jnp.bfloat16, compute_dtype=jnp.bfloat16)
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), gemma3.params)
    outputs = jax.jit(lambda params: token_log_probs(config, params, gemma3.sequences, TEMPERATURE))(params)
    assert {output.dtype for output in outputs} == {jnp.dtype(jnp.float32)}
    assert relative_error(outputs, gemma3.outputs) < 0.02
