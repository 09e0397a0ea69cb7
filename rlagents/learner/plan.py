"""Which prompts share a micro-batch, and how long it has to be: planned on the host, which knows all lengths."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from rlagents.learner.slices import pieces
from rlagents.types import Batch


class MicroBatch(NamedTuple):
    """Prompts that run together, and the lengths that their sequences are cut to."""

    rows: Int[np.ndarray, "d n"]
    """``n`` prompts of each of the ``d`` parts that prompts are split into, counted within the part."""
    prefix_tokens: int
    member_tokens: int


class Plan(NamedTuple):
    """How one rollout batch is computed."""

    updates: tuple[tuple[MicroBatch, ...], ...]
    """The micro-batches of each slice of the rollout batch that an update takes."""
    padding_fraction: float
    """Share of the token positions of all micro-batches, prefixes and members', that hold no token."""


def plan_micro_batches(
    batch: Batch,
    *,
    prompts_per_micro_batch: int,
    updates_per_batch: int,
    prompt_shards: int,
    prefix_buckets: Sequence[int],
    member_buckets: Sequence[int],
) -> Plan:
    """Order the prompts of each update by length, longest first, and cut them into micro-batches.

    What counts is the length up to the last token that may be trained: members that are not valid, and what follows
    the last MODEL token, need no computing. A prompt's length is ``prefix + g * longest member``. Prompts without such
    a token (padding) come last, and a micro-batch of nothing else is left out.

    Each of the ``prompt_shards`` parts of the batch orders its own prompts and gives as many to every micro-batch, so
    that no token moves between devices. A micro-batch's lengths are the smallest bucket that holds it, or the batch's
    own where none does.

    Raises ValueError for prompts that do not divide.
    """
    p, g, t = batch.masks.kind.shape
    per_update = pieces(p, updates_per_batch, "prompts of a rollout batch")
    count = pieces(per_update, prompts_per_micro_batch, "prompts of an update batch")
    pieces(prompts_per_micro_batch, prompt_shards, "prompts of a micro-batch (split over data x fsdp)")

    trained_to = np.max(np.where(batch.masks.trainable, np.arange(1, t + 1), 0), axis=(1, 2))
    prefix = np.where(trained_to > 0, batch.sequences.prefix_length, 0)
    by_part = (prompt_shards, p // prompt_shards)
    trained_to, prefix = trained_to.reshape(by_part), prefix.reshape(by_part)
    size = prefix + g * trained_to
    # [d n_i]: prompt i of a rollout batch belongs to update i modulo updates_per_batch, in every part alike.
    longest_first = [
        update + updates_per_batch * np.argsort(-size[:, update::updates_per_batch], axis=1, kind="stable")
        for update in range(updates_per_batch)
    ]

    def micro_batch(rows: np.ndarray) -> MicroBatch:
        return MicroBatch(
            rows.astype(np.int32),
            _bucket(np.max(np.take_along_axis(prefix, rows, 1)), prefix_buckets, batch.sequences.prefix.shape[1]),
            _bucket(np.max(np.take_along_axis(trained_to, rows, 1)), member_buckets, t),
        )

    updates = tuple(
        tuple(micro_batch(rows) for rows in np.split(order, count, axis=1) if np.take_along_axis(size, rows, 1).any())
        for order in longest_first
    )
    return Plan(updates, _padding_fraction(batch, [micro for update in updates for micro in update], by_part))


def _padding_fraction(batch: Batch, micro_batches: Sequence[MicroBatch], by_part: tuple[int, int]) -> float:
    parts = np.arange(by_part[0])[:, None]
    prefix, member = (
        np.asarray(length).reshape(*by_part, -1) for length in (batch.sequences.prefix_length, batch.sequences.length)
    )
    held = positions = 0
    for rows, prefix_tokens, member_tokens in micro_batches:
        held += np.minimum(prefix[parts, rows], prefix_tokens).sum()
        held += np.minimum(member[parts, rows], member_tokens).sum()
        positions += rows.size * (prefix_tokens + member.shape[-1] * member_tokens)
    return 1.0 - float(held) / positions if positions else 0.0


def _bucket(length: int, buckets: Sequence[int], whole: int) -> int:
    return min([bucket for bucket in buckets if length <= bucket < whole], default=whole)
