"""Rows for added tokens: what was there stays bit by bit, what is new is what the oracle says, and it learns."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

from rlagents.model_passes import model_passes
from rlagents.models.vocabulary import GrownParams, grown_config, grown_table, with_special_tokens
from rlagents.rollouts.conditions import GOAL_LITERALS
from rlagents.sharding import make_mesh
from tests.effort import draws
from tests.models.tiny import LLAMA, QWEN2, random_params, relative_error
from tests.oracles import vocabulary as oracle
from tests.rollouts.tiny import tokenizer
from tests.test_model_passes import DATA, SEQUENCES, term

KEY = jax.random.key(3)
END = 334
"""One more than the largest id of the tiny tokenizer."""
TABLES = ("embedding", "head")


def tables(config, seed=0):
    """All of a decoder's weights that have to do with its vocabulary, and one that has not."""
    rng = np.random.default_rng(seed)
    of = {name: rng.normal(size=(config.vocab_rows, config.embed_dim)) for name in TABLES[: 2 - config.tie_embeddings]}
    of |= {"final_norm": {"weight": rng.normal(size=config.embed_dim)}}
    return jax.tree.map(lambda array: jnp.asarray(array, config.param_dtype), of)


def making(config):
    return lambda key, shardings: jax.device_put(tables(config), shardings)


SIZES = {
    # known, spare, old padding, added, padding
    "nothing new": (5, 2, 1, 0, 0),
    "two after the last": (6, 0, 0, 2, 0),
    "padding, too": (6, 0, 3, 2, 4),
    "one in a spare row": (4, 2, 0, 0, 3),
    "of one known": (1, 1, 2, 3, 0),
}


@functools.partial(jax.jit, static_argnames=("before", "rows", "known", "created"))
def run(table, key, **sizes):
    return grown_table(table, key, **sizes)


@settings(max_examples=draws(30), deadline=None)
@given(st.integers(0, 1000), st.sampled_from(sorted(SIZES)), st.sampled_from([0.0, 1e-4, 1.0]))
def test_rows_are_the_oracle_s_and_what_was_there_stays(seed, name, covariance_scale):
    known, spare, old_padding, added, padding = SIZES[name]
    rng, before = np.random.default_rng(seed), known + spare
    table = rng.normal(size=(before + old_padding, 5)).astype(np.float32)
    table[before:] = 7.0  # Old padding may hold anything.
    # The first new token takes a spare row where there is one; others come after the last.
    in_spare = [known] if spare and name != "nothing new" else []
    created = (*in_spare, *range(before, before + added))
    sizes = {"before": before, "rows": before + added + padding, "known": known, "created": created}
    key = jax.random.key(seed)
    found = np.asarray(run(table, key, **sizes, covariance_scale=covariance_scale))
    drawn = [jax.random.normal(jax.random.fold_in(key, token), (len(table),)) for token in created]
    wanted = oracle.grown_table(table, drawn, **sizes, covariance_scale=covariance_scale)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    kept = [row for row in range(before) if row not in created]
    np.testing.assert_array_equal(found[kept], table[kept])
    np.testing.assert_array_equal(found[before + added :], 0.0)


def test_new_rows_have_the_mean_of_the_known_and_their_covariance():
    """5,000 draws: within five standard errors, which are fixed with the key."""
    known = np.random.default_rng(0).normal(size=(40, 3)) @ np.array(
        [[2.0, 1.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 3.0]]
    )
    count, scale = 5000, 0.25
    sizes = {"before": 40, "rows": 40 + count, "known": 40, "created": range(40, 40 + count)}
    new = np.asarray(grown_table(jnp.asarray(known, jnp.float32), KEY, **sizes, covariance_scale=scale))[40:]
    wanted = scale * np.cov(known.T, bias=True)
    spread = np.sqrt(np.diag(wanted))
    assert np.all(np.abs(new.mean(0) - known.mean(0)) < 5 * spread / np.sqrt(count))
    assert np.all(np.abs(np.cov(new.T) - wanted) < 5 * np.sqrt(2) * np.outer(spread, spread) / np.sqrt(count))


def test_a_row_depends_on_key_and_id_alone():
    """Not on padding, nor on how many tokens are added."""
    decoder = LLAMA.replace(vocab_size=END)
    _, make_one, _ = with_special_tokens(decoder, making(decoder), tokenizer(), GOAL_LITERALS[:1], multiple_of=1)
    after, make_two, _ = with_special_tokens(decoder, making(decoder), tokenizer(), GOAL_LITERALS)
    assert (after.vocab_size, after.vocab_rows) == (END + 2, 384)
    one, two, other = make_one(KEY, None), make_two(KEY, None), make_two(jax.random.key(4), None)
    for name in TABLES:
        np.testing.assert_array_equal(two[name][:END], tables(decoder)[name])
        np.testing.assert_allclose(one[name][END], two[name][END], rtol=1e-5, atol=1e-7)
        assert np.all(two[name][END] != two[name][END + 1])
        assert np.all(two[name][END] != other[name][END])
    jax.tree.map(np.testing.assert_array_equal, two["final_norm"], tables(decoder)["final_norm"])
    jax.tree.map(np.testing.assert_array_equal, make_two(KEY, None), two)


def test_embedding_and_head_draw_each_their_own_noise():
    decoder = LLAMA.replace(vocab_size=END)
    table = tables(decoder)["embedding"]
    alike = {"embedding": table, "head": table}
    _, make, _ = with_special_tokens(decoder, lambda key, shardings: alike, tokenizer(), GOAL_LITERALS)
    grown = make(KEY, None)
    assert np.all(grown["embedding"][END : END + 2] != grown["head"][END : END + 2])


def test_in_bfloat16_no_two_tokens_begin_alike():
    decoder = QWEN2.replace(vocab_size=END, param_dtype=jnp.bfloat16, compute_dtype=jnp.bfloat16)
    _, make, _ = with_special_tokens(decoder, making(decoder), tokenizer(), GOAL_LITERALS)
    table = make(KEY, None)["embedding"]
    assert table.dtype == jnp.bfloat16
    assert np.mean(np.asarray(table[END] == table[END + 1])) < 0.1


def test_spare_rows_take_added_tokens_and_the_vocabulary_keeps_its_size():
    """As in Qwen2.5: more rows than tokens. What no token takes stays as it was, and counts in the softmax."""
    decoder = QWEN2.replace(vocab_size=384)
    params = tables(decoder)
    after, make, larger = with_special_tokens(decoder, making(decoder), tokenizer(), GOAL_LITERALS)
    assert after == decoder
    assert len(larger) == END + 2
    grown = make(KEY, None)["embedding"]
    new = [END, END + 1]
    others = [row for row in range(384) if row not in new]
    np.testing.assert_array_equal(grown[np.array(others)], params["embedding"][np.array(others)])
    mean = params["embedding"][:END].mean(0)
    assert np.max(np.abs(grown[np.array(new)] - mean)) < 0.1 * float(jnp.std(params["embedding"]))
    assert not np.array_equal(grown[END], params["embedding"][END])


def test_tokens_that_were_there_are_not_made_anew():
    decoder = QWEN2.replace(vocab_size=END)
    after, make, larger = with_special_tokens(decoder, making(decoder), tokenizer(), GOAL_LITERALS)
    again, make_again, _ = with_special_tokens(after, make, larger, GOAL_LITERALS)
    assert again == after
    jax.tree.map(np.testing.assert_array_equal, make_again(KEY, None), make(KEY, None))


def test_tokens_without_a_row_get_one():
    """A tokenizer that was saved with more tokens than its model has rows."""
    decoder = QWEN2.replace(vocab_size=END - 3)
    after, make, _ = with_special_tokens(decoder, making(decoder), tokenizer(), GOAL_LITERALS, multiple_of=1)
    assert after.vocab_size == END + 2
    table = make(KEY, None)["embedding"]
    assert np.all(np.any(np.asarray(table) != 0, axis=1))


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_new_rows_that_occur_learn_others_do_not_and_padding_never(tied):
    """Of a loss of log-probabilities and entropies, as RL has it, and of their plain sum, as imitation has it."""
    before = QWEN2.replace(tie_embeddings=tied)
    config = before.replace(vocab_size=64, vocab_padding=6)
    made = random_params(before)
    params = GrownParams(lambda key, shardings: made, before, config, 61, (61, 62, 63))(KEY, None)
    seen, unseen = [61, 62], 63
    tokens = SEQUENCES.tokens.at[0, 0, 2].set(61).at[0, 0, 3].set(62)
    sequences = type(SEQUENCES)(SEQUENCES.prefix, SEQUENCES.prefix_length, tokens, SEQUENCES.length)

    def imitation(log_prob, entropy, data):
        return -jnp.sum(log_prob), {}

    passes = model_passes(config, 1.0)
    for loss in (term, imitation):
        _, gradient = jax.jit(lambda params, loss=loss: passes.gradient(loss, params, sequences, DATA))(params)
        size = {name: np.max(np.abs(gradient[name]), axis=1) for name in TABLES if name in params}
        assert np.all(size["embedding"][seen] > 0)
        assert (size["embedding"][unseen] > 0) == tied, "an untied embedding learns from what is fed alone"
        assert np.all(size[TABLES[not tied]][:64] > 0), "each token has a share in the softmax"
        for of_table in size.values():
            np.testing.assert_array_equal(of_table[64:], 0.0)


class TestOnAMesh:
    decoder = LLAMA.replace(vocab_size=END, embed_dim=512)

    def shardings(self, mesh):
        table = NamedSharding(mesh, PartitionSpec("tensor", "fsdp"))
        return {"embedding": table, "head": table, "final_norm": {"weight": NamedSharding(mesh, PartitionSpec("fsdp"))}}

    @pytest.mark.parametrize("before", [END - 2, END], ids=["divided", "not divided"])
    def test_rows_are_made_where_they_live(self, before):
        mesh = make_mesh(data=1, fsdp=2, tensor=4)
        decoder, shardings = self.decoder.replace(vocab_size=before), self.shardings(mesh)
        after, make, _ = with_special_tokens(decoder, making(decoder), tokenizer(), GOAL_LITERALS)
        split, whole = make(KEY, shardings), make(KEY, None)
        assert jax.tree.map(lambda leaf: leaf.sharding, split) == shardings
        assert split["embedding"].addressable_shards[0].data.shape == (after.vocab_rows // 4, 256)
        for name in TABLES:
            np.testing.assert_array_equal(split[name][:before], whole[name][:before])
        assert relative_error(split, whole) < 1e-5

    def test_no_device_ever_holds_a_whole_table(self):
        mesh = make_mesh(data=1, fsdp=1, tensor=8)
        decoder, table = self.decoder.replace(vocab_size=256), self.shardings(mesh)["embedding"]
        grown = GrownParams(making(decoder), decoder, grown_config(decoder, 258), 256, (256, 257))
        program = jax.jit(grown.of_table, in_shardings=(table, None), out_shardings=table)
        text = program.lower(jax.ShapeDtypeStruct((256, 512), jnp.float32), KEY).compile().as_text()
        sizes = [math.prod(map(int, shape.split(","))) for shape in re.findall(r"f32\[([\d,]+)\]", text)]
        assert max(sizes) < 256 * 512 / 2, sorted(set(sizes))[-5:]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"known": 0}, "0 tokens are known of a vocabulary of 61"),
        ({"known": 62}, "62 tokens are known"),
        ({"created": (60,)}, r"ids \[60\] are no new ones: those are from 61 to 62"),
        ({"created": (63,)}, r"ids \[63\] are no new ones"),
        ({"covariance_scale": -1.0}, "covariance_scale is -1.0; expected a finite number"),
        ({"covariance_scale": float("nan")}, "covariance_scale is nan"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(changes, message):
    given_sizes = {"known": 61, "created": (61, 62), "covariance_scale": 1.0}
    with pytest.raises(ValueError, match=message):
        GrownParams(making(QWEN2), QWEN2, grown_config(QWEN2, 63), **given_sizes | changes)


@pytest.mark.parametrize(
    ("vocab_size", "multiple_of", "message"),
    [
        (60, 1, "cannot shrink to 60"),
        (61, 0, "multiple_of is 0"),
        (61, True, "multiple_of is True"),
        (61, 2.0, "is 2.0"),
    ],
)
def test_a_vocabulary_does_not_shrink_and_a_multiple_is_a_whole_number(vocab_size, multiple_of, message):
    with pytest.raises(ValueError, match=message):
        grown_config(QWEN2, vocab_size, multiple_of=multiple_of)
