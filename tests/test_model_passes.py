"""Whatever runs at once, again or fused: one loss, one gradient; and memory bounds what is kept."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.core import jaxprs_in_params

from rlagents import models
from rlagents.learner import fused_loss
from rlagents.model_passes import model_passes
from rlagents.models.chunks import chunk_positions
from rlagents.models.layers import SAVE_ATTENTION
from rlagents.models.remat import SAVE_PRODUCTS, products_bytes, remat_within
from rlagents.row_chunks import RowChunks
from rlagents.sharding import activations_over, make_mesh
from rlagents.types import Sequences
from tests.effort import draws
from tests.models.tiny import GEMMA3, QWEN2, random_params, random_sequences, relative_error

PLAIN = {
    "loss_chunk_tokens": 0,
    "layer_chunk_tokens": 0,
    "head_chunk_tokens": 0,
    "attention_chunk_logits": 0,
    "attention_parts": 0,
}
SEQUENCES = random_sequences(QWEN2, seed=3)
DATA = np.random.default_rng(0).normal(size=(2, *SEQUENCES.tokens.shape)).astype(np.float32)
DATA = tuple(jnp.asarray(x) for x in DATA)


def term(log_prob, entropy, data):
    """Reads rows whole, as a sequence's ratio does, and both scores."""
    weight, bonus = data
    of_row = jnp.exp(0.1 * jnp.sum(weight * log_prob, axis=-1))
    return jnp.sum(of_row) + jnp.sum(bonus * entropy), {"rows": jnp.sum(of_row), "log_prob": jnp.sum(log_prob)}


def gradient(params, sequences=SEQUENCES, data=DATA, **options):
    passes = model_passes(QWEN2, 0.7, **options)
    return jax.jit(lambda params: passes.gradient(term, params, sequences, data))(params)


@pytest.fixture(scope="module")
def params():
    return random_params(QWEN2)


@pytest.fixture(scope="module")
def plain(params):
    return gradient(params, **PLAIN)


@pytest.mark.parametrize(
    "options",
    [
        PLAIN | {"loss_chunk_tokens": 1},
        PLAIN | {"loss_chunk_tokens": 10**6},
        PLAIN | {"loss_chunk_tokens": 12, "head_chunk_tokens": 3},
        PLAIN | {"layer_chunk_tokens": 3},
        PLAIN | {"attention_chunk_logits": 1},
        PLAIN | {"activation_gigabytes": 1.0},
        PLAIN | {"members_per_micro_batch": 1, "loss_chunk_tokens": 1, "layer_chunk_tokens": 5},
        PLAIN | {"members_per_micro_batch": 1, "activation_gigabytes": 1.0},
        {},
    ],
    ids=str,
)
def test_each_fast_path_equals_the_plain_one(options, params, plain):
    found = gradient(params, **options)
    assert relative_error(found, plain) < 1e-5


def test_attention_of_long_rows_in_parts_or_blocks_gives_what_the_whole_does(params):
    long = random_sequences(QWEN2, seed=4, p=1, g=2, l=130, t=128)
    data = tuple(jnp.asarray(x, jnp.float32) for x in np.random.default_rng(1).normal(size=(2, *long.tokens.shape)))
    plain = gradient(params, long, data, **PLAIN)
    for option in ({"attention_parts": 4}, {"attention_chunk_logits": 1}):
        assert relative_error(gradient(params, long, data, **PLAIN | option), plain) < 1e-5


def test_members_with_their_whole_prompts_give_what_a_shared_prefix_does(params):
    """``collate(share_prefix=False)``."""
    prompts, members, length = SEQUENCES.tokens.shape
    most = SEQUENCES.prefix.shape[1] + length
    tokens, shifted = np.zeros((prompts, members, most), np.int32), np.zeros((2, prompts, members, most), np.float32)
    for p, n in enumerate(np.asarray(SEQUENCES.prefix_length)):
        tokens[p, :, :n] = SEQUENCES.prefix[p, :n]
        tokens[p, :, n : n + length] = SEQUENCES.tokens[p]
        # A member's first token is given; whole prompts give it a log-probability, which nobody reads.
        shifted[:, p, :, n + 1 : n + length] = np.asarray(DATA)[:, p, :, 1:]
    whole = dataclasses.replace(
        SEQUENCES,
        prefix_length=jnp.zeros_like(SEQUENCES.prefix_length),
        tokens=jnp.asarray(tokens),
        length=SEQUENCES.prefix_length[:, None] + SEQUENCES.length,
    )

    def read(log_prob, entropy, data):
        (loss, metrics) = term(log_prob, entropy, data)
        return loss, {"rows": metrics["rows"]}

    def gradient(sequences, data):
        return jax.jit(lambda params: model_passes(QWEN2, 0.7).gradient(read, params, sequences, data))(params)

    shared = gradient(SEQUENCES, DATA)
    assert relative_error(gradient(whole, tuple(jnp.asarray(shifted))), shared) < 1e-5


def rows_term(log_prob, entropy, data):
    """Reads no entropy: the gradient of the head has a shorter way then."""
    loss, metrics = term(log_prob, jax.lax.stop_gradient(entropy), data)
    return loss, metrics | {"entropy": jnp.sum(entropy)}


def head_products(options, length, devices):
    """Products with the head for a row of ``length`` tokens on each device, in the gradient's program."""
    params, n = jax.eval_shape(lambda: random_params(QWEN2)), devices
    sequences = Sequences(
        prefix=jnp.ones((n, 4), jnp.int32),
        prefix_length=jnp.full(n, 4),
        tokens=jnp.ones((n, 1, length), jnp.int32),
        length=jnp.full((n, 1), length),
    )
    passes, data = model_passes(QWEN2, 0.7, **options), (jnp.ones((n, 1, length)),) * 2
    with activations_over(make_mesh(data=n, fsdp=1, tensor=1, devices=jax.devices()[:n])):
        jaxpr = jax.make_jaxpr(lambda params: passes.gradient(rows_term, params, sequences, data))(params)
    return sum(QWEN2.vocab_size in shape for shape in product_shapes(jaxpr.jaxpr))


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize(
    ("options", "length", "products"),
    [
        (PLAIN | {"loss_chunk_tokens": 12, "head_chunk_tokens": 12}, 13, 3),
        (PLAIN | {"loss_chunk_tokens": 30, "head_chunk_tokens": 12}, 31, 3),
        (PLAIN | {"loss_chunk_tokens": 12, "head_chunk_tokens": 12}, 14, 4),
        (PLAIN | {"head_chunk_tokens": 12}, 14, 4),
    ],
    ids=str,
)
def test_a_row_that_the_loss_takes_whole_spares_a_product_with_the_head(options, length, products, devices):
    assert head_products(options, length, devices) == products


def test_without_the_entropys_gradient_too(params):
    def gradient(**options):
        passes = model_passes(QWEN2, 0.7, **options)
        return jax.jit(lambda params: passes.gradient(rows_term, params, SEQUENCES, DATA))(params)

    plain = gradient(**PLAIN)
    assert relative_error(gradient(), plain) < 1e-5
    assert relative_error(gradient(loss_chunk_tokens=1, head_chunk_tokens=1), plain) < 1e-5
    assert relative_error(gradient(loss_chunk_tokens=0, head_chunk_tokens=1), plain) < 1e-5


def product_shapes(jaxpr):
    """Sizes of the axes of every product; those of inner jaxprs included."""
    shapes = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            shapes.append({size for v in (*equation.invars, *equation.outvars) for size in v.aval.shape})
        for inner in jaxprs_in_params(equation.params):
            shapes += product_shapes(inner)
    return shapes


@settings(max_examples=draws(50), deadline=None)
@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 9))
def test_chunks_of_positions_are_even(length, chunk_tokens, rows):
    chunk = chunk_positions((rows,), length, chunk_tokens)
    count = -(-length // chunk)
    assert chunk * rows <= max(chunk_tokens, rows)
    assert count * chunk - length < count  # less than a position a chunk is padding
    assert count == -(-length // max(1, chunk_tokens // rows))  # and there are no more of them than need be


def test_what_a_prefix_keeps_while_slices_of_its_members_run_counts_with_each(params, monkeypatch):
    asked = set()

    def remember(config, positions, *, gigabytes):
        asked.add(positions)
        return remat_within(config, positions, gigabytes=gigabytes)

    monkeypatch.setattr("rlagents.model_passes.remat_within", remember)
    passes = model_passes(QWEN2, 0.7, members_per_micro_batch=1)
    jax.eval_shape(lambda params: passes.gradient(term, params, SEQUENCES, DATA), params)
    prefix, members = SEQUENCES.prefix.size, SEQUENCES.tokens.size
    assert asked == {prefix, prefix + members // SEQUENCES.tokens.shape[1]}


def test_a_loss_alone_and_part_of_another_are_those_of_the_plain_path():
    """Evaluated without a gradient; and as part of a larger loss."""

    def scores(hidden, head, sequences):
        return (hidden @ head.T)[..., 0], jnp.sum(hidden, axis=-1)

    loss = fused_loss(lambda params, sequences: (params["h"], params["w"]), scores, chunk_tokens=1)
    rng = np.random.default_rng(1)
    small = {"h": jnp.asarray(rng.normal(size=(*DATA[0].shape, 2))), "w": jnp.asarray(rng.normal(size=(1, 2)))}

    def direct(params):
        return term(*scores(params["h"], params["w"], SEQUENCES), DATA)[0]

    def fused(params):
        return loss(term, params, SEQUENCES, DATA)[0]

    np.testing.assert_allclose(jax.jit(fused)(small), jax.jit(direct)(small), rtol=1e-6)
    squares = [jax.jit(jax.grad(lambda p, f=f: f(p) ** 2))(small) for f in (fused, direct)]
    assert relative_error(*squares) < 1e-5


@settings(max_examples=draws(30), deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 9), st.integers(1, 60), st.sampled_from([1, 2, 3]))
def test_chunks_cut_all_rows_once_and_hold_no_more_than_asked(prompts, members, row_tokens, chunk_tokens, shards):
    chunks = RowChunks.of(prompts, members, row_tokens=row_tokens, chunk_tokens=chunk_tokens)
    assert chunks.prompts * chunks.members * row_tokens <= max(chunk_tokens, row_tokens)
    if prompts % shards == 0 and chunks.prompts % shards == 0:
        chunks = chunks._replace(shards=shards)
    rows = jnp.arange(prompts * members * 2).reshape(prompts, members, 2)
    pieces = chunks.cut_prompts(rows)
    np.testing.assert_array_equal(chunks.join_prompts(pieces), rows)
    small = chunks.cut_members(pieces[0])
    assert small.shape == (members // chunks.members, chunks.prompts, chunks.members, 2)
    np.testing.assert_array_equal(chunks.join_members(small), pieces[0])


def test_split_over_devices_each_takes_from_what_it_holds(params):
    """Four prompts on two devices, one of each in a chunk: the numbers of one device, and no row is sent elsewhere."""
    mesh = make_mesh(data=2, fsdp=1, tensor=1, devices=jax.devices()[:2])
    twice = jax.tree.map(lambda x: jnp.concatenate([x, x]), SEQUENCES)
    twice = dataclasses.replace(twice, tokens=twice.tokens[:4], length=twice.length[:4])
    data = tuple(jnp.concatenate([x, x])[:4] for x in DATA)
    small = {"layer_chunk_tokens": 5, "loss_chunk_tokens": 5}
    passes = model_passes(QWEN2, 0.7, **small)

    def split(params):
        with activations_over(mesh):
            assert RowChunks.of(4, 2, row_tokens=5, chunk_tokens=5) == (2, 2, 1)
            return passes.gradient(term, params, twice, data)

    assert relative_error(jax.jit(split)(params), gradient(params, twice, data, **PLAIN)) < 1e-5


@pytest.mark.parametrize("config", [QWEN2, GEMMA3], ids=["qwen2", "gemma3"])
def test_what_memory_is_asked_for_is_what_the_backward_pass_finds_kept(config):
    params, sequences = random_params(config), random_sequences(config, seed=3)

    def kept(policy):
        def scores(params):
            return models.token_log_probs(config, params, sequences, 1.0, remat_policy=policy, layer_chunk_tokens=None)

        residuals = jax.tree.leaves(jax.eval_shape(lambda params: jax.vjp(scores, params)[1], params))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in residuals)

    positions = sequences.prefix.size + sequences.tokens.size
    more = products_bytes(config, positions)
    assert kept(SAVE_PRODUCTS) - kept(SAVE_ATTENTION) == more
    assert remat_within(config, positions, gigabytes=more / 1e9) is SAVE_PRODUCTS
    assert remat_within(config, positions, gigabytes=(more - 1) / 1e9) is SAVE_ATTENTION
    with activations_over(make_mesh(data=2, fsdp=1, tensor=1, devices=jax.devices()[:2])):
        assert remat_within(config, positions, gigabytes=more / 2e9) is SAVE_PRODUCTS


@pytest.mark.parametrize(
    "temperature", [0, -1.0, float("nan"), float("inf"), 10**400, True, "1", None], ids=lambda value: repr(value)[:9]
)
def test_logits_are_divided_by_a_number_above_0(temperature):
    with pytest.raises(ValueError, match=f"^temperature is {temperature!r}; give a number > 0"):
        model_passes(QWEN2, temperature)


@pytest.mark.parametrize("members", [0, 1.0, True, "all"])
def test_members_at_once_are_a_whole_number(members):
    with pytest.raises(ValueError, match=f"^members_per_micro_batch is {members!r}; give a whole number >= 1"):
        model_passes(QWEN2, 1.0, members_per_micro_batch=members)


def test_a_temperature_may_be_of_numpy_or_an_array_of_unknown_value():
    for temperature in (np.float32(0.5), jnp.asarray(0.5)):
        model_passes(QWEN2, temperature)
    jax.eval_shape(lambda temperature: (model_passes(QWEN2, temperature), temperature)[1], jnp.asarray(0.5))
