"""One optimizer update, or none: what happens to a gradient once it is summed."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from rlagents.learner.optimizer import Optimizer
from rlagents.learner.state import TrainState
from rlagents.types import Largest, Masks, Mean, Params, Reported, Sequences, pytree


@pytree
class StepReport:
    """What one update did, as device arrays: fetch it a step late and the device never waits for the host."""

    step: Int[Array, ""]
    """Updates tried before this one."""
    loss: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    """Global norm before clipping."""
    learning_rate: Float[Array, ""]
    metrics: Reported
    counts: dict[str, Int[Array, ""]]
    applied: Bool[Array, ""]
    empty: Bool[Array, ""]
    """No token carried weight: nothing to learn from, nothing moved."""
    loss_finite: Bool[Array, ""]
    gradient_finite: Any
    """A tree like the parameters: is every entry of the leaf's gradient finite?"""
    nonfinite_in_a_row: Int[Array, ""]
    skipped: Int[Array, ""]


def apply_update(
    state: TrainState,
    loss: Array,
    gradient: Params,
    metrics: Reported,
    counts: dict[str, Array],
    empty: Array,
    optimizer: Optimizer,
) -> tuple[TrainState, StepReport]:
    """Apply ``gradient``, unless it or ``loss`` is not finite or the update batch is ``empty``.

    A skipped update leaves parameters and optimizer state bit for bit as they were: with momentum and weight decay even
    a gradient of 0 would move them.
    """
    leaves_finite = jax.tree.map(lambda leaf: jnp.all(jnp.isfinite(leaf)), gradient)
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(gradient)))
    # The norm also overflows where every entry is finite but its square is not.
    finite = jnp.isfinite(loss) & jnp.isfinite(norm)
    applied = finite & ~empty

    updates, optimizer_state = optimizer.update(gradient, state.optimizer_state, state.params)
    moved = (optax.apply_updates(state.params, updates), optimizer_state)
    kept = (state.params, state.optimizer_state)
    params, optimizer_state = jax.tree.map(lambda new, old: jnp.where(applied, new, old), moved, kept)

    new = dataclasses.replace(
        state,
        params=params,
        optimizer_state=optimizer_state,
        step=state.step + 1,
        nonfinite_in_a_row=jnp.where(finite, 0, state.nonfinite_in_a_row + 1),
        skipped=state.skipped + jnp.where(applied, 0, 1),
    )
    report = StepReport(
        step=state.step,
        loss=loss,
        gradient_norm=norm,
        learning_rate=jnp.asarray(optimizer.learning_rate(state.step - state.skipped), jnp.float32),
        metrics=metrics,
        counts=counts,
        applied=applied,
        empty=empty,
        loss_finite=jnp.isfinite(loss),
        gradient_finite=leaves_finite,
        nonfinite_in_a_row=new.nonfinite_in_a_row,
        skipped=new.skipped,
    )
    return new, report


def token_counts(sequences: Sequences, masks: Masks, trained: Bool[Array, "p g t"]) -> dict[str, Array]:
    """Count the tokens of an update batch: ``trained`` by the loss, written by the model, and all (prefixes once)."""
    return {
        "tokens_trained": jnp.sum(trained),
        "tokens_model": jnp.sum(masks.trainable),
        "tokens_total": jnp.sum(sequences.prefix_length) + jnp.sum(sequences.length),
    }


class NonFiniteError(RuntimeError):
    """Too many updates in a row had a loss or a gradient that is not finite."""


def check_finite(report: StepReport, *, max_nonfinite_in_a_row: int = 3) -> None:
    """Stop a run that no longer learns. Reads ``report`` from the device: call it a step late.

    Raises NonFiniteError, with the step and the cause, once ``max_nonfinite_in_a_row`` updates in a row were skipped
    for a value that is not finite.
    """
    in_a_row = int(report.nonfinite_in_a_row)
    if in_a_row >= max_nonfinite_in_a_row:
        raise NonFiniteError(
            f"{in_a_row} updates in a row were skipped, the last at step {int(report.step)}: "
            f"{nonfinite_cause(report)}. Parameters are those of the last finite update; look for infinite rewards or "
            "log-probabilities, a learning rate that is too high or a dtype that is too narrow"
        )


def nonfinite_cause(report: StepReport) -> str:
    """Say which value of a skipped update was not finite."""
    if not bool(report.loss_finite):
        return f"the loss was {float(report.loss)}"
    leaves = jax.tree_util.tree_leaves_with_path(report.gradient_finite)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, finite in leaves if not bool(finite)]
    if not names:
        return f"the gradient's global norm was {float(report.gradient_norm)} though every entry was finite"
    return f"the loss was {float(report.loss)} but the gradient of {', '.join(names)} was not finite"


def report_values(*reports: StepReport) -> dict[str, float]:
    """Fetch the updates of one rollout batch as plain numbers, one a name.

    Metrics are means over all their tokens, or the largest of them, counts are sums, ``loss`` and ``gradient_norm``
    means over updates; ``learning_rate`` and ``updates_skipped_total`` are those of the last.
    """
    fetched = jax.device_get(reports)
    last = fetched[-1]
    counts = {name: float(sum(r.counts[name] for r in fetched)) for name in last.counts}
    return (
        {name: _over_updates([report.metrics[name] for report in fetched]) for name in last.metrics}
        | counts
        | {
            "loss": float(np.mean([r.loss for r in fetched])),
            "gradient_norm": float(np.mean([r.gradient_norm for r in fetched])),
            "learning_rate": float(last.learning_rate),
            "updates_applied": float(sum(bool(r.applied) for r in fetched)),
            "updates_empty": float(sum(bool(r.empty) for r in fetched)),
            "updates_skipped_total": float(last.skipped),
        }
    )


def _over_updates(metrics: Sequence[Mean | Largest]) -> float:
    """On the host, where nothing is to be compiled for it."""
    means = [metric for metric in metrics if isinstance(metric, Mean)]
    if means:
        return float(functools.reduce(Mean.__add__, means).value)
    return float(np.max([metric.value for metric in metrics]))
