import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlagents.models.head import log_prob_and_entropy
from tests.effort import draws
from tests.models.tiny import array_sizes, relative_error
from tests.oracles import decoder as oracle


def random_case(seed, *batch, t, d=8, v=23):
    rng = np.random.default_rng(seed)
    hidden = jnp.asarray(rng.normal(size=(*batch, t, d)), jnp.float32)
    head = jnp.asarray(rng.normal(size=(v, d)), jnp.float32)
    return hidden, head, jnp.asarray(rng.integers(0, v, (*batch, t)), jnp.int32)


def naive(hidden, head, targets, temperature):
    log_p = jax.nn.log_softmax(hidden @ head.T / temperature)
    at_target = jnp.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]
    return at_target, -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


@functools.partial(jax.jit, static_argnums=4)
def run(hidden, head, targets, temperature, chunk_tokens):
    return log_prob_and_entropy(hidden, head, targets, temperature, chunk_tokens)


@settings(max_examples=draws(40), deadline=None)
@given(
    seed=st.integers(0, 1000),
    shape=st.sampled_from([(1, 7, 1), (3, 1, 10), (3, 7, 12), (2, 7, 30)]),
    temperature=st.floats(0.3, 3.0),
)
def test_equals_the_definition_whatever_the_chunk(seed, shape, temperature):
    p, t, chunk_tokens = shape
    hidden, head, targets = random_case(seed, p, 2, t=t)
    log_prob, entropy = run(hidden, head, targets, temperature, chunk_tokens)
    flat = np.asarray(hidden).reshape(-1, 8), np.asarray(head), np.asarray(targets).reshape(-1)
    expected_log_prob, expected_entropy = oracle.log_prob_and_entropy(*flat, temperature)
    np.testing.assert_allclose(log_prob.reshape(-1), expected_log_prob, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(entropy.reshape(-1), expected_entropy, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("chunk_tokens", "temperature"), [(1, 0.5), (24, 0.5), (1000, 2.0)])
@pytest.mark.parametrize("read", [(0, 1), (0,), (1,)], ids=["both", "log_prob", "entropy"])
def test_gradient_equals_that_of_whole_logits(chunk_tokens, temperature, read):
    hidden, head, targets = random_case(0, 2, 3, t=7)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(2, *targets.shape)), jnp.float32)

    def loss(function, hidden, head):
        scores = function(hidden, head, targets, temperature)
        return sum(jnp.sum(weights[i] * scores[i]) for i in read)

    def chunked(*args):
        return log_prob_and_entropy(*args, chunk_tokens)

    ours, whole = (jax.jit(jax.grad(functools.partial(loss, f), (0, 1)))(hidden, head) for f in (chunked, naive))
    assert relative_error(ours, whole) < 1e-5


@pytest.mark.parametrize("chunk_tokens", [2, 100])
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_huge_logits_stay_finite(chunk_tokens, weight):
    hidden, head, targets = random_case(2, 1, t=4)

    def loss(hidden):
        log_prob, entropy = log_prob_and_entropy(hidden, head, targets, 1.0, chunk_tokens)
        return jnp.sum(log_prob) + (jnp.sum(entropy) if weight else 0.0)

    value, gradient = jax.jit(jax.value_and_grad(loss))(1e4 * hidden)
    assert jnp.isfinite(value)
    assert jnp.all(jnp.isfinite(gradient))


@pytest.mark.parametrize("chunk_tokens", [12, 1000])
def test_the_gradient_of_bfloat16_is_that_of_the_same_numbers_in_float32_but_for_its_rounding(chunk_tokens):
    """A log-probability's gradient alone takes its products from the softmax's numerators, rounded."""
    hidden, head, targets = (x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x for x in random_case(5, 2, 3, t=9))

    def gradient(dtype):
        def loss(hidden, head):
            return jnp.sum(log_prob_and_entropy(hidden.astype(dtype), head, targets, 1.0, chunk_tokens)[0])

        return jax.jit(jax.grad(loss, (0, 1)))(hidden.astype(jnp.float32), head.astype(jnp.float32))

    assert relative_error(gradient(jnp.bfloat16), gradient(jnp.float32)) < 2**-7


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_whole_logits_exist_in_neither_direction(weight):
    hidden, head, targets = random_case(3, 2, 4, t=50, d=4, v=1000)
    chunk_tokens = 40

    def loss(hidden, head):
        log_prob, entropy = log_prob_and_entropy(hidden, head, targets, 1.0, chunk_tokens)
        return jnp.sum(log_prob) + (jnp.sum(entropy) if weight else 0.0)

    step = jax.jit(jax.value_and_grad(loss, (0, 1)))
    sizes = array_sizes(jax.make_jaxpr(step)(hidden, head).jaxpr)
    assert max(sizes) == chunk_tokens * 1000
    # The compiler adds none either: a few chunks, far from the 2 * 4 * 50 rows of whole logits.
    memory = step.lower(hidden, head).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 4 * targets.size * 1000 * 0.6
