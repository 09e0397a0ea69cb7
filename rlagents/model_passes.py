"""The decoder as the learner runs it: what is computed at once, what again, and how much memory that may take.

Nothing here changes a result. Each way of sparing time or memory is switched off by 0, one by one.
"""

import sys
from functools import partial
from typing import Any

import jax
from jaxtyping import Array

from rlagents import models
from rlagents.argument_checks import check_above, check_number, check_whole
from rlagents.learner import Passes, fused_loss, member_slices, whole_groups
from rlagents.learner.fused import Body
from rlagents.learner.passes import Loss, Scores
from rlagents.models import shared
from rlagents.models.blockwise import ATTENTION_CHUNK_LOGITS, blockwise
from rlagents.models.causal import ATTENTION_PARTS, in_causal_parts
from rlagents.models.decoder import KV, head_weight
from rlagents.models.dense import dense
from rlagents.models.remat import remat_within
from rlagents.types import Params, Sequences


def model_passes(
    decoder: models.DecoderConfig,
    temperature: float,
    *,
    members_per_micro_batch: int | None = None,
    loss_chunk_tokens: int = shared.HEAD_CHUNK_TOKENS,
    head_chunk_tokens: int = shared.HEAD_CHUNK_TOKENS,
    layer_chunk_tokens: int = shared.LAYER_CHUNK_TOKENS,
    attention_chunk_logits: int = ATTENTION_CHUNK_LOGITS,
    attention_parts: int = ATTENTION_PARTS,
    activation_gigabytes: float = 0.0,
) -> Passes:
    """Passes of a decoder at the temperature that was sampled with.

    Args:
      decoder: the model.
      temperature: divides logits.
      members_per_micro_batch: members of a group that run at once, where even one group is too large; None is all.
      loss_chunk_tokens: tokens whose loss is taken while their logits are still there (``learner.fused``): three
        products with the head instead of four. Rows stay whole; those longer than this compute their logits again. 0
        takes the loss of all tokens at once, from log-probabilities, and computes all logits again for the gradient.
      head_chunk_tokens: tokens whose logits exist at once (``models.head``); 0 is all.
      layer_chunk_tokens: tokens that pass a layer at once (``models.layers``); 0 is all.
      attention_chunk_logits: logits of attention ``[.. h q s]`` that exist at once, of all heads and a few positions of
        every member (``models.blockwise``); 0 is all.
      attention_parts: parts of a row's positions, each of which meets only the keys up to its end (``models.causal``);
        1 computes the logits of keys that come later too, and 0 likewise.
      activation_gigabytes: what a device may keep of layers for the backward pass beside their inputs and what
        attention gathered (``models.remat``); 0 computes the rest again.

    Raises:
      ValueError: a number of tokens, logits or members that is no whole number, or too small; memory that is no finite
        number >= 0; a temperature that is no finite number > 0, as far as it is no array.
    """
    for name, number in (
        ("loss_chunk_tokens", loss_chunk_tokens),
        ("head_chunk_tokens", head_chunk_tokens),
        ("layer_chunk_tokens", layer_chunk_tokens),
        ("attention_chunk_logits", attention_chunk_logits),
        ("attention_parts", attention_parts),
    ):
        check_whole(name, number, 0)
    check_number("activation_gigabytes", activation_gigabytes, 0)
    if members_per_micro_batch is not None:
        check_whole("members_per_micro_batch", members_per_micro_batch, 1)
    if not isinstance(temperature, jax.Array):  # of an array, the value may not be known here
        check_above("temperature", temperature, 0)

    head_chunk_tokens = head_chunk_tokens or sys.maxsize
    backend = in_causal_parts(attention_parts, blockwise(attention_chunk_logits) if attention_chunk_logits else dense)

    def options(positions: int) -> dict[str, Any]:
        policy = remat_within(decoder, positions, gigabytes=activation_gigabytes)
        return {"backend": backend, "remat_policy": policy, "layer_chunk_tokens": layer_chunk_tokens or None}

    def prefix_of_slices(params: Params, prefix: Array, prefix_length: Array) -> KV:
        return models.prefix_kv(decoder, params, prefix, prefix_length, **options(prefix.size))

    def member_body(params: Params, kv: KV, sequences: Sequences) -> tuple[Array, Array]:
        # What the prefix keeps stays through all slices.
        both = options(sequences.prefix.size + sequences.tokens.size)
        return shared.member_hidden(decoder, params, kv, sequences, **both), head_weight(decoder, params)

    def group_body(params: Params, sequences: Sequences) -> tuple[Array, Array]:
        both = options(sequences.prefix.size + sequences.tokens.size)
        kv = models.prefix_kv(decoder, params, sequences.prefix, sequences.prefix_length, **both)
        return shared.member_hidden(decoder, params, kv, sequences, **both), head_weight(decoder, params)

    def scores(hidden: Array, head: Array, sequences: Sequences, head_chunk_tokens: int = head_chunk_tokens) -> Scores:
        of_tokens = partial(shared.hidden_log_probs, vocab_size=decoder.vocab_size, head_chunk_tokens=head_chunk_tokens)
        return of_tokens(hidden, head, sequences, temperature)

    # A row that the loss takes whole keeps its logits.
    of_loss = partial(scores, head_chunk_tokens=max(head_chunk_tokens, loss_chunk_tokens))

    def group_scores(params: Params, sequences: Sequences) -> Scores:
        return scores(*group_body(params, sequences), sequences)

    def member_scores(params: Params, kv: KV, sequences: Sequences) -> Scores:
        return scores(*member_body(params, kv, sequences), sequences)

    def loss(body: Body) -> Loss | None:
        return None if loss_chunk_tokens == 0 else fused_loss(body, of_loss, chunk_tokens=loss_chunk_tokens)

    if members_per_micro_batch is None:
        return whole_groups(group_scores, loss(group_body))
    return member_slices(prefix_of_slices, member_scores, loss(member_body), members=members_per_micro_batch)
