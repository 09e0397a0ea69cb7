"""Learning from traces: the same decoder, masks and update as learning from rollouts, another loss."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from rlagents import sharding
from rlagents.learner.optimizer import Optimizer
from rlagents.learner.passes import Passes, split_over
from rlagents.learner.slices import by_prompts, sum_over
from rlagents.learner.state import TrainState
from rlagents.learner.update import StepReport, apply_update, token_counts
from rlagents.numerics import safe_divide
from rlagents.types import Masks, Mean, Metrics, Params, Sequences

SupervisedStep = Callable[[TrainState, Sequences, Masks], tuple[TrainState, StepReport]]
"""``(state, sequences, masks) -> (state, report)``; the state given is donated: never use it again."""


def make_supervised_step(
    passes: Passes, optimizer: Optimizer, shardings: Any, *, prompts_per_micro_batch: int
) -> SupervisedStep:
    """Bind a model and an optimizer to maximum likelihood.

    ``loss = - sum_{trainable} log_prob / #trainable`` over MODEL tokens of valid members of the whole batch (unrelated
    traces have ``g = 1``), computed ``prompts_per_micro_batch`` at a time. A batch without such tokens moves nothing.
    Raises ValueError at the first call for prompts that do not divide.
    """
    mesh = shardings.step.mesh
    passes = split_over(mesh, passes)

    def step(state: TrainState, sequences: Sequences, masks: Masks) -> tuple[TrainState, StepReport]:
        trained = masks.trainable
        measure = safe_divide(trained, jnp.sum(trained))

        def term(log_prob: Array, entropy: Array, data: tuple[Array, Array]) -> tuple[Array, Metrics]:
            trained, measure = data
            loss = -jnp.sum(measure * jnp.where(trained, log_prob, 0.0))
            return loss, {"entropy": Mean.of(entropy, trained)}

        def gradient(piece: tuple[Sequences, tuple[Array, Array]]) -> tuple[tuple[Array, Metrics], Params]:
            return passes.gradient(term, state.params, *piece)

        def place(total: tuple[Any, Params]) -> tuple[Any, Params]:
            return total[0], jax.lax.with_sharding_constraint(total[1], shardings.params)

        cut = by_prompts((sequences, (trained, measure)), prompts_per_micro_batch, mesh)
        (loss, metrics), total = sum_over(gradient, cut, place)
        counts = token_counts(sequences, masks, trained)
        return apply_update(state, loss, total, metrics, counts, ~jnp.any(trained), optimizer)

    return jax.jit(step, donate_argnums=0, out_shardings=(shardings, sharding.replicated(mesh)))
