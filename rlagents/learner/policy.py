"""Learning from rollouts: prepare facts, assign credit once, take the updates.

    batch, _ = learner.place(host_batch)
    facts = learner.prepare(state.params, reference_params, batch)
    state, credit, metrics = learner.credit(state, batch, facts)
    for update in learner.schedule:
        state, report = learner.step(state, batch, facts, credit, update)

Credit runs once per rollout batch, on whole groups. An update batch is a slice of its prompts and the unit of measures
(weights per token). Micro-batches split the update batch; because a loss is a sum of measured tokens, their gradients
add up to the gradient of the whole.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from rlagents import sharding
from rlagents.learner.binding import Learner, Totals, bind, open_update
from rlagents.learner.optimizer import Optimizer
from rlagents.learner.passes import Passes, Scores
from rlagents.learner.slices import by_prompts, join_prompts, sum_over, update_batch
from rlagents.learner.state import TrainState
from rlagents.learner.update import StepReport, apply_update
from rlagents.methods.method import Method
from rlagents.types import Batch, Credit, LogProbs, Params, Sequences


def make_learner(
    method: Method,
    passes: Passes,
    optimizer: Optimizer,
    shardings: Any,
    *,
    prompts_per_micro_batch: int,
    updates_per_batch: int = 1,
    epochs: int = 1,
    reuse_policy_as_old: bool = True,
) -> Learner:
    """Bind a method to a model and an optimizer.

    ``shardings`` is the ``TrainState`` of shardings that the state was created with. Each rollout batch gives
    ``epochs * updates_per_batch`` updates of ``p / updates_per_batch`` prompts, computed ``prompts_per_micro_batch`` at
    a time. In the first update ``old`` is the gradient-free policy itself, so that the ratio is exactly 1; for the
    others, where there are any, it is computed once, before the first. ``reuse_policy_as_old=False`` computes it for
    all, at the cost of one forward pass where there is a single update.

    Raises ValueError for counts below 1, and at the first call for prompts that do not divide.
    """
    if min(prompts_per_micro_batch, updates_per_batch, epochs) < 1:
        raise ValueError(
            "prompts_per_micro_batch, updates_per_batch and epochs must be 1 or more, found "
            f"{prompts_per_micro_batch}, {updates_per_batch} and {epochs}"
        )
    mesh = shardings.step.mesh
    bound = bind(
        method,
        passes,
        shardings,
        updates_per_batch=updates_per_batch,
        epochs=epochs,
        reuse_policy_as_old=reuse_policy_as_old,
    )

    def place(batch: Batch) -> tuple[Batch, dict[str, float]]:
        return sharding.shard_batch(batch, mesh), {}

    def scores(params: Params, sequences: Sequences) -> Scores:
        return scores_jit(params, sharding.shard_batch(sequences, mesh))

    def prepare(params: Params, reference_params: Params | None, batch: Batch) -> LogProbs:
        def scores(params: Params) -> Scores:
            cut = by_prompts(batch.sequences, prompts_per_micro_batch, mesh)
            return join_prompts(jax.lax.map(lambda piece: bound.passes.scores(params, piece), cut))

        blank = jnp.zeros(batch.rollout.shape, jnp.float32)
        return bound.facts(scores, blank, params, reference_params, batch)

    def step(
        state: TrainState, batch: Batch, facts: LogProbs, credit: Credit, update: Int[Array, ""]
    ) -> tuple[TrainState, StepReport]:
        whole = (batch, bound.of_update(facts, update), credit)
        batch, facts, credit = update_batch(whole, update % updates_per_batch, updates_per_batch, mesh)
        measures, counts, empty = open_update(method, batch.sequences, batch.masks, credit)

        def place(totals: Totals) -> Totals:
            return totals[0], jax.lax.with_sharding_constraint(totals[1], shardings.params)

        data = (batch.sequences, (facts, batch.rollout, credit, batch.masks, measures))
        cut = by_prompts(data, prompts_per_micro_batch, mesh)
        (loss, metrics), total = sum_over(partial(bound.gradient, state.params, state.method_state), cut, place)
        return apply_update(state, loss, total, metrics, counts, empty, optimizer)

    scores_jit = jax.jit(bound.passes.scores, out_shardings=sharding.prompt_sharding(mesh))
    prepare_jit = jax.jit(prepare, out_shardings=sharding.prompt_sharding(mesh))
    step_jit = jax.jit(step, donate_argnums=0, out_shardings=(shardings, sharding.replicated(mesh)))
    return Learner(place, prepare_jit, bound.credit, step_jit, bound.schedule, scores)
