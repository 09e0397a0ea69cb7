"""A larger vocabulary for a decoder that has weights: rows for added tokens, padding for a mesh.

    decoder, make_params, tokenizer = with_special_tokens(decoder, make_params, tokenizer, GOAL_LITERALS)

in the ``build`` of a config is all that an experiment needs. Rows of tokens that were there stay bit by bit.

An added token begins near the mean of all known tokens (Hewitt, 2021, "Initializing new word embeddings for pretrained
language models": its share in every softmax is then at most about that of an average token, so that hardly any other
probability moves), with noise of the known rows' covariance, so that no two begin alike:

    row = mean + sqrt(covariance_scale / n) * sum_i z_i (known_i - mean)        z_i ~ N(0, 1), i = 1 .. n

which has mean ``mean`` and covariance ``covariance_scale * Cov(known)``, and no covariance is ever formed.
``resize_token_embeddings`` of transformers draws from the same distribution at a scale of 1e-9; in bfloat16 that noise
is lost.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, PRNGKeyArray
from transformers import PreTrainedTokenizerBase

from rlagents.models.config import DecoderConfig
from rlagents.models.special_tokens import add_special_tokens, vocabulary_end
from rlagents.types import Params

T = TypeVar("T", bound=PreTrainedTokenizerBase)

MakeParams = Callable[[jax.Array, Any], Params]
"""``(key, shardings) -> weights``; without shardings (None), all on the default device."""

VOCAB_MULTIPLE = 128
"""Rows of a padded vocabulary are a multiple of it, as in Megatron-LM: every tensor axis up to 128 that is a power of
two divides them, so that a checkpoint does not depend on the mesh."""

COVARIANCE_SCALE = 1e-4
"""New rows spread 1% as far about the mean as known ones do."""


def with_special_tokens(
    decoder: DecoderConfig,
    make_params: MakeParams,
    tokenizer: T,
    literals: Sequence[str],
    *,
    multiple_of: int = VOCAB_MULTIPLE,
    covariance_scale: float = COVARIANCE_SCALE,
) -> tuple[DecoderConfig, MakeParams, T]:
    """Decoder, weights and tokenizer with every literal as a special token; what is given is not changed.

    Many models have more rows than tokens (Qwen2.5: 151,936 for 151,665). An added token whose id is among those spare
    rows takes its row, made anew, and the vocabulary keeps its size; other spare rows stay what they are to
    transformers, too: logits that count. Beyond them the vocabulary grows. Its rows are then padded to a multiple of
    ``multiple_of``; padding counts nowhere (``DecoderConfig.vocab_padding``).

    A checkpoint of another vocabulary is refused by its shapes. Where added tokens take spare rows, one without them
    has the same shapes: it is restored as it is, and those rows are what they were there.

    Raises ValueError as :func:`add_special_tokens` and :func:`grown_config` do.
    """
    known = min(vocabulary_end(tokenizer), decoder.vocab_size)
    grown_tokenizer, ids = add_special_tokens(tokenizer, literals)
    end = max(decoder.vocab_size, vocabulary_end(grown_tokenizer))
    # A tokenizer may know tokens that the decoder has no row for yet: those are new to it, too.
    created = sorted({token for token in ids if token >= known} | set(range(decoder.vocab_size, end)))
    after = grown_config(decoder, end, multiple_of=multiple_of)
    grown = GrownParams(make_params, decoder, after, known, tuple(created), covariance_scale)
    return after, grown, grown_tokenizer


def grown_config(decoder: DecoderConfig, vocab_size: int, *, multiple_of: int = VOCAB_MULTIPLE) -> DecoderConfig:
    """The decoder with ``vocab_size`` tokens, its rows padded to a multiple of ``multiple_of``.

    Raises ValueError for fewer tokens than it has, and for a ``multiple_of`` that is no whole number from 1 on.
    """
    if vocab_size < decoder.vocab_size:
        raise ValueError(f"a vocabulary of {decoder.vocab_size} cannot shrink to {vocab_size}; give as many or more.")
    if isinstance(multiple_of, bool) or not isinstance(multiple_of, int) or multiple_of < 1:
        raise ValueError(f"multiple_of is {multiple_of!r}; expected a whole number, 1 (no padding) or more.")
    return decoder.replace(vocab_size=vocab_size, vocab_padding=-vocab_size % multiple_of)


@dataclasses.dataclass(frozen=True)
class GrownParams:
    """``make_params`` of a decoder whose vocabulary grew: those of the smaller one, then new rows.

    Up to rounding, a new row is a function of the key, of its id and of the known rows alone: not of how many tokens
    are added, of padding or of a mesh. Rows are created under jit in the shardings given, and a device holds no more of
    a table than its shares of the smaller and of the larger one. Where the mesh does not divide the smaller one, its
    share of that is all of the vocabulary.

    Attributes:
      make_params: of the smaller decoder; called with the same key.
      before, after: the smaller decoder and the larger one.
      known: the rows before it are those of tokens that were there: they give mean and covariance.
      created: ids from ``known`` on whose rows are made anew.
      covariance_scale: see the module.
    """

    make_params: MakeParams
    before: DecoderConfig
    after: DecoderConfig
    known: int
    created: tuple[int, ...]
    covariance_scale: float = COVARIANCE_SCALE

    def __post_init__(self):
        if not 0 < self.known <= self.before.vocab_size:
            raise ValueError(f"{self.known} tokens are known of a vocabulary of {self.before.vocab_size}.")
        outside = [token for token in self.created if not self.known <= token < self.after.vocab_size]
        if outside:
            raise ValueError(
                f"ids {outside} are no new ones: those are from {self.known} to {self.after.vocab_size - 1}."
            )
        if not 0 <= self.covariance_scale < float("inf"):
            raise ValueError(f"covariance_scale is {self.covariance_scale}; expected a finite number, 0 or more.")

    def __call__(self, key: PRNGKeyArray, shardings: Params | None) -> Params:
        """The weights; see ``MakeParams``."""
        tables = ("embedding",) if self.after.tie_embeddings else ("embedding", "head")
        shape = (self.before.vocab_rows, self.before.embed_dim)
        if shardings is None:
            smaller = None
        else:
            smaller = {**shardings, **{name: _divided(shardings[name], shape) for name in tables}}
        params = self.make_params(key, smaller)
        for index, name in enumerate(tables):
            place = None if shardings is None else shardings[name]
            of_table = jax.random.fold_in(jax.random.fold_in(key, _ADDED_TOKENS), index)
            params = {**params, name: jax.jit(self.of_table, out_shardings=place)(params[name], of_table)}
        return params

    def of_table(self, table: Float[Array, "v d"], key: PRNGKeyArray) -> Float[Array, "rows d"]:
        """The larger embedding or head of the smaller one; see :func:`grown_table`."""
        return grown_table(
            table,
            key,
            before=self.before.vocab_size,
            rows=self.after.vocab_rows,
            known=self.known,
            created=self.created,
            covariance_scale=self.covariance_scale,
        )


_ADDED_TOKENS = 0xADD
"""Begins what is folded into the key, which the smaller decoder's weights are drawn from as well."""


def grown_table(
    table: Float[Array, "v d"],
    key: PRNGKeyArray,
    *,
    before: int,
    rows: int,
    known: int,
    created: Sequence[int],
    covariance_scale: float,
) -> Float[Array, "rows d"]:
    """An embedding or a head of ``rows`` rows.

    Args:
      table: the old one; rows from ``before`` on are padding.
      key: a new row is drawn from it and from the row's id.
      before: rows that stay bit by bit, but for those created anew.
      rows: of the result; what neither stays nor is created is 0.
      known: the rows that give mean and covariance.
      created: ids, from ``known`` on.
      covariance_scale: of the new rows' covariance over that of the known.
    """
    kept = jnp.arange(table.shape[0])[:, None]
    here = table.astype(jnp.float32)
    mean = jnp.sum(jnp.where(kept < known, here, 0.0), axis=0) / known
    away = jnp.where(kept < known, here - mean, 0.0)
    larger = jnp.pad(jnp.where(kept < before, table, 0)[:rows], ((0, max(0, rows - table.shape[0])), (0, 0)))
    if not created:
        return larger
    ids = jnp.asarray(created)
    noise = jax.vmap(lambda token: jax.random.normal(jax.random.fold_in(key, token), (table.shape[0],)))(ids)
    new = (mean + jnp.sqrt(covariance_scale / known) * (noise @ away)).astype(table.dtype)
    return larger.at[ids].set(new)


def _divided(sharding: Any, shape: tuple[int, int]) -> Any:
    """The sharding, with the first axis whole where the mesh does not divide ``shape``."""
    try:
        sharding.shard_shape(shape)
    except ValueError:
        return NamedSharding(sharding.mesh, PartitionSpec(None, *sharding.spec[1:]))
    return sharding
