"""Learning from rollouts: prepare facts, assign credit once, take the updates.

    facts = learner.prepare(state.params, reference_params, batch)
    state, credit, metrics = learner.credit(state, batch, facts)
    for update in learner.schedule:
        state, report = learner.step(state, batch, facts, credit, update)

Credit runs once per rollout batch, on whole groups. An update batch is a slice of its prompts and the unit of measures
(weights per token). Micro-batches split the update batch; because a loss is a sum of measured tokens, their gradients
add up to the gradient of the whole.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from rlagents import sharding
from rlagents.learner.optimizer import Optimizer
from rlagents.learner.passes import Passes, Scores, split_over
from rlagents.learner.slices import by_prompts, join_prompts, sum_over, update_batch
from rlagents.learner.state import TrainState
from rlagents.learner.update import StepReport, apply_update, token_counts
from rlagents.methods import border
from rlagents.methods.method import Method
from rlagents.types import Batch, Credit, LogProbs, Mean, Metrics, Params, Sequences


class Learner(NamedTuple):
    """Jitted pure functions; see the module's example. Nothing here recompiles for batches of one shape."""

    prepare: Callable[[Params, Params | None, Batch], LogProbs]
    """``(params, reference_params, batch) -> facts``: without gradient, only what the method needs."""
    credit: Callable[[TrainState, Batch, LogProbs], tuple[TrainState, Credit, Metrics]]
    """``(state, batch, facts) -> (state, credit, metrics)``: only ``method_state`` is new in the state."""
    step: Callable[[TrainState, Batch, LogProbs, Credit, Array | np.int32], tuple[TrainState, StepReport]]
    """``(state, batch, facts, credit, update) -> (state, report)``; the state given is donated: never use it again."""
    schedule: tuple[np.int32, ...]
    """Which slice of the rollout batch each update takes, epoch after epoch."""


def make_learner(
    method: Method,
    passes: Passes,
    optimizer: Optimizer,
    shardings: Any,
    *,
    prompts_per_micro_batch: int,
    updates_per_batch: int = 1,
    epochs: int = 1,
) -> Learner:
    """Bind a method to a model and an optimizer.

    ``shardings`` is the ``TrainState`` of shardings that the state was created with. Each rollout batch gives
    ``epochs * updates_per_batch`` updates of ``p / updates_per_batch`` prompts, computed ``prompts_per_micro_batch`` at
    a time. With a single update ``old`` is the gradient-free policy itself, so that the ratio is exactly 1 and no pass
    is spent on it; with several it is computed once, before the first.

    Raises ValueError for counts below 1, and at the first call for prompts that do not divide.
    """
    if min(prompts_per_micro_batch, updates_per_batch, epochs) < 1:
        raise ValueError(
            "prompts_per_micro_batch, updates_per_batch and epochs must be 1 or more, found "
            f"{prompts_per_micro_batch}, {updates_per_batch} and {epochs}"
        )
    schedule = (*np.arange(updates_per_batch, dtype=np.int32),) * epochs
    single = len(schedule) == 1
    wanted = method.needs if single else method.needs | {"old"}
    mesh = shardings.step.mesh
    passes = split_over(mesh, passes)
    everywhere = sharding.replicated(mesh)
    along_prompts = sharding.prompt_sharding(mesh)

    def scores(params: Params, sequences: Sequences) -> Scores:
        cut = by_prompts(sequences, prompts_per_micro_batch, mesh)
        return join_prompts(jax.lax.map(lambda piece: passes.scores(params, piece), cut))

    def prepare(params: Params, reference_params: Params | None, batch: Batch) -> LogProbs:
        log_prob = entropy = reference = None
        if wanted & {"old", "old_entropy"}:
            log_prob, entropy = scores(params, batch.sequences)
        if "reference" in wanted:
            if reference_params is None:
                raise ValueError("the method compares with a reference model: pass reference_params to prepare")
            reference, _ = scores(reference_params, batch.sequences)
        return LogProbs(
            # The live policy is no fact; each step fills it in.
            policy=jnp.zeros(batch.rollout.shape, jnp.float32),
            old=log_prob if "old" in wanted else None,
            old_entropy=entropy if "old_entropy" in wanted else None,
            reference=reference,
            rollout=batch.rollout if "rollout" in wanted else None,
        )

    def credit(method_state: Any, batch: Batch, facts: LogProbs) -> tuple[Credit, Any, Metrics]:
        return method.credit(method_state, facts, batch.rewards, batch.masks)

    def step(
        state: TrainState, batch: Batch, facts: LogProbs, credit: Credit, update: Int[Array, ""]
    ) -> tuple[TrainState, StepReport]:
        batch, facts, credit = update_batch((batch, facts, credit), update, updates_per_batch, mesh)
        measures = method.measures(credit, batch.masks)

        def term(log_prob: Array, entropy: Array, data: tuple) -> tuple[Array, Metrics]:
            facts, rollout, credit, masks, measures = data
            live = dataclasses.replace(facts, policy=log_prob, entropy=entropy)
            if single:
                live = border.on_policy(live)
            loss, metrics = method.loss(state.method_state, live, credit, masks, measures)
            gap = jnp.abs(jax.lax.stop_gradient(log_prob) - rollout)
            return loss, metrics | {"rollout_gap": Mean.of(gap, credit.mask)}

        def gradient(piece: tuple[Sequences, tuple]) -> tuple[tuple[Array, Metrics], Params]:
            return passes.gradient(term, state.params, *piece)

        def place(total: tuple[Any, Params]) -> tuple[Any, Params]:
            return total[0], jax.lax.with_sharding_constraint(total[1], shardings.params)

        data = (batch.sequences, (facts, batch.rollout, credit, batch.masks, measures))
        (loss, metrics), total = sum_over(gradient, by_prompts(data, prompts_per_micro_batch, mesh), place)
        empty = ~jnp.any(jnp.stack([jnp.any(measure != 0) for measure in jax.tree.leaves(measures)]))
        counts = token_counts(batch.sequences, batch.masks, credit.mask)
        return apply_update(state, loss, total, metrics, counts, empty, optimizer)

    prepare_jit = jax.jit(prepare, out_shardings=along_prompts)
    credit_jit = jax.jit(credit, out_shardings=(along_prompts, shardings.method_state, everywhere))
    step_jit = jax.jit(step, donate_argnums=0, out_shardings=(shardings, everywhere))

    def credit_of(state: TrainState, batch: Batch, facts: LogProbs) -> tuple[TrainState, Credit, Metrics]:
        assigned, method_state, metrics = credit_jit(state.method_state, batch, facts)
        return dataclasses.replace(state, method_state=method_state), assigned, metrics

    return Learner(prepare_jit, credit_of, step_jit, schedule)
