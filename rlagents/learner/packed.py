"""Learning from rollouts in micro-batches packed by length: the same updates from fewer positions.

Micro-batches cut from a padded batch all have its shape, so that one long trajectory makes every other pay. Here the
host, which knows all lengths, orders the prompts of each update by length and gives every micro-batch the smallest
buckets that hold it (``plan``). Facts, credit and measures are those of whole groups and whole update batches, as ever;
a loss is a sum over tokens, so which prompts share a micro-batch does not matter.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from rlagents import sharding
from rlagents.learner.binding import Learner, TokenData, Totals, bind, open_update
from rlagents.learner.optimizer import Optimizer
from rlagents.learner.passes import Passes, Scores
from rlagents.learner.plan import Plan, plan_micro_batches
from rlagents.learner.rows import put_tokens, take_sequences, take_tokens
from rlagents.learner.slices import add, back_in_batch, update_batch, zeros_like_sum
from rlagents.learner.state import TrainState
from rlagents.learner.update import StepReport, apply_update
from rlagents.methods.method import Measures, Method
from rlagents.types import Batch, Credit, LogProbs, Params, Sequences


class PackedBatch(NamedTuple):
    """A rollout batch on the devices, and how the host planned to compute it."""

    batch: Batch
    plan: Plan


def make_packed_learner(
    method: Method,
    passes: Passes,
    optimizer: Optimizer,
    shardings: Any,
    *,
    prompts_per_micro_batch: int,
    prefix_buckets: tuple[int, ...],
    member_buckets: tuple[int, ...],
    updates_per_batch: int = 1,
    epochs: int = 1,
    reuse_policy_as_old: bool = True,
) -> Learner:
    """``make_learner`` whose micro-batches are cut to ``prefix_buckets`` (``l``) and ``member_buckets`` (``t``).

    ``place`` plans, and reports ``padding_fraction_packed``: the share of the positions really computed that hold no
    token. Facts are 0 for tokens that cannot be trained and that no micro-batch holds; no method may look at those.

    The passes are compiled once per pair of buckets that occurs, whatever the batches' own shapes. The host only
    dispatches: which rows a micro-batch takes is data, and running totals stay on the devices. At the update a gradient
    is a buffer of its own beside the state; within one program, as ``make_learner`` has it, XLA may reuse it.

    Several hosts would have to agree on one plan, and each knows only the lengths of its own prompts: use
    ``make_learner`` there. Raises ValueError on several hosts and where ``make_learner`` does.
    """
    if min(prompts_per_micro_batch, updates_per_batch, epochs) < 1:
        raise ValueError(
            "prompts_per_micro_batch, updates_per_batch and epochs must be 1 or more, found "
            f"{prompts_per_micro_batch}, {updates_per_batch} and {epochs}"
        )
    if jax.process_count() > 1:
        raise ValueError(
            f"micro-batches are packed by length on 1 host, found {jax.process_count()}: their hosts would have to "
            "agree on one plan; use make_learner (rl.pack_micro_batches=False)"
        )
    mesh = shardings.step.mesh
    along_prompts, everywhere = sharding.prompt_sharding(mesh), sharding.replicated(mesh)
    totals_shardings = (everywhere, shardings.params)
    bound = bind(
        method,
        passes,
        shardings,
        updates_per_batch=updates_per_batch,
        epochs=epochs,
        reuse_policy_as_old=reuse_policy_as_old,
    )

    def take(
        sequences: Sequences, data: Any, rows: Array, prefix_tokens: int, member_tokens: int
    ) -> tuple[Sequences, Any]:
        return (
            take_sequences(sequences, rows, prefix_tokens, member_tokens, mesh),
            take_tokens(data, rows, member_tokens, mesh),
        )

    def put(whole: Scores, rows: Array, taken: Scores) -> Scores:
        return put_tokens(whole, rows, taken, mesh)

    def blank(rollout: Float[Array, "p g t"]) -> Array:
        return jnp.zeros(rollout.shape, jnp.float32)

    def start(
        state: TrainState, batch: Batch, facts: LogProbs, credit: Credit, update: Int[Array, ""]
    ) -> tuple[Totals, Measures, tuple[Any, Array]]:
        """Nothing summed yet, in the shape of the sum; measures in the places of the rollout batch."""
        update = update % updates_per_batch
        cut = update_batch((batch.sequences, batch.masks, credit), update, updates_per_batch, mesh)
        measures, counts, empty = open_update(method, *cut)
        measures = back_in_batch(measures, update, updates_per_batch, mesh)
        data = (batch.sequences, (facts, batch.rollout, credit, batch.masks, measures))
        totals = zeros_like_sum(bound.gradient, state.params, state.method_state, data)
        return totals, measures, (counts, empty)

    def accumulate(totals: Totals, params: Params, method_state: Any, piece: tuple[Sequences, TokenData]) -> Totals:
        return add(totals, bound.gradient(params, method_state, piece))

    def apply(state: TrainState, totals: Totals, tokens: tuple[Any, Array]) -> tuple[TrainState, StepReport]:
        (loss, metrics), gradient = totals
        return apply_update(state, loss, gradient, metrics, *tokens, optimizer)

    take_jit = jax.jit(take, static_argnums=(3, 4), out_shardings=along_prompts)
    put_jit = jax.jit(put, donate_argnums=0, out_shardings=along_prompts)
    blank_jit = jax.jit(blank, out_shardings=along_prompts)
    scores_jit = jax.jit(bound.passes.scores, out_shardings=along_prompts)
    of_update_jit = jax.jit(bound.of_update, out_shardings=along_prompts)
    start_jit = jax.jit(start, out_shardings=(totals_shardings, along_prompts, everywhere))
    accumulate_jit = jax.jit(accumulate, donate_argnums=0, out_shardings=totals_shardings)
    apply_jit = jax.jit(apply, donate_argnums=0, out_shardings=(shardings, everywhere))

    def place(batch: Batch) -> tuple[PackedBatch, dict[str, float]]:
        plan = plan_micro_batches(
            batch,
            prompts_per_micro_batch=prompts_per_micro_batch,
            updates_per_batch=updates_per_batch,
            prompt_shards=sharding.prompt_shards(mesh),
            prefix_buckets=prefix_buckets,
            member_buckets=member_buckets,
        )
        placed = PackedBatch(sharding.shard_batch(batch, mesh), plan)
        return placed, {"padding_fraction_packed": plan.padding_fraction}

    def prepare(params: Params, reference_params: Params | None, packed: PackedBatch) -> LogProbs:
        batch, plan = packed

        def scores(params: Params) -> Scores:
            whole = (blank_jit(batch.rollout), blank_jit(batch.rollout))
            for micro_batch in (micro_batch for update in plan.updates for micro_batch in update):
                sequences, _ = take_jit(batch.sequences, (), *micro_batch)
                whole = put_jit(whole, micro_batch.rows, scores_jit(params, sequences))
            return whole

        return bound.facts(scores, blank_jit(batch.rollout), params, reference_params, batch)

    def credit(state: TrainState, packed: PackedBatch, facts: LogProbs) -> Any:
        return bound.credit(state, packed.batch, facts)

    def step(
        state: TrainState, packed: PackedBatch, facts: LogProbs, credit: Credit, update: Array | np.int32
    ) -> tuple[TrainState, StepReport]:
        batch, plan = packed
        totals, measures, tokens = start_jit(state, batch, facts, credit, update)
        data = (of_update_jit(facts, update), batch.rollout, credit, batch.masks, measures)
        for micro_batch in plan.updates[int(update) % updates_per_batch]:
            piece = take_jit(batch.sequences, data, *micro_batch)
            totals = accumulate_jit(totals, state.params, state.method_state, piece)
        return apply_jit(state, totals, tokens)

    def scores(params: Params, sequences: Sequences) -> Scores:
        return scores_jit(params, sharding.shard_batch(sequences, mesh))

    return Learner(place, prepare, credit, step, bound.schedule, scores)
