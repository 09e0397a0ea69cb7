"""A method bound to a model: what learning from rollouts computes, however batches are cut."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from rlagents import sharding
from rlagents.learner.distances import distances
from rlagents.learner.passes import Passes, Scores, split_over
from rlagents.learner.state import TrainState
from rlagents.learner.update import StepReport, token_counts
from rlagents.methods import border
from rlagents.methods.method import Measures, Method
from rlagents.types import Batch, Credit, LogProbs, Masks, Metrics, Params, Reported, Sequences

TokenData = tuple[LogProbs, Float[Array, "p g t"], Credit, Masks, Measures]
"""``(facts, rollout, credit, masks, measures)``: what the loss reads beside the live policy."""

Totals = tuple[tuple[Float[Array, ""], Reported], Params]
"""``((loss, metrics), gradient)``: sums over tokens, which add up across micro-batches."""


class Learner(NamedTuple):
    """Pure functions; see the example of ``policy``. Nothing here recompiles for batches of one shape."""

    place: Callable[[Batch], tuple[Any, dict[str, float]]]
    """``host batch -> (batch on the devices, metrics)``: as the other functions take it, and what was found there."""
    prepare: Callable[[Params, Params | None, Any], LogProbs]
    """``(params, reference_params, batch) -> facts``: without gradient, only what the method needs."""
    credit: Callable[[TrainState, Any, LogProbs], tuple[TrainState, Credit, Metrics]]
    """``(state, batch, facts) -> (state, credit, metrics)``: only ``method_state`` is new in the state."""
    step: Callable[[TrainState, Any, LogProbs, Credit, Array | np.int32], tuple[TrainState, StepReport]]
    """``(state, batch, facts, credit, update) -> (state, report)``; the state given is donated: never use it again."""
    schedule: tuple[np.int32, ...]
    """Numbers of the updates from a rollout batch; number ``n`` takes its slice ``n % updates_per_batch``."""
    scores: Callable[[Params, Sequences], Scores]
    """``(params, host sequences) -> (log-probabilities, entropies)`` of prompts that the mesh divides, to look
    at; nothing is learned from them."""


class Binding(NamedTuple):
    """What does not depend on how batches are cut into micro-batches; all but ``credit`` is for use inside jit."""

    schedule: tuple[np.int32, ...]
    passes: Passes
    facts: Callable[[Callable[[Params], Scores], Array, Params, Params | None, Batch], LogProbs]
    """``(scores, blank, params, reference_params, batch) -> facts``; ``scores(params)`` runs the whole batch."""
    credit: Callable[[TrainState, Batch, LogProbs], tuple[TrainState, Credit, Metrics]]
    of_update: Callable[[LogProbs, Array | np.int32], LogProbs]
    """Facts as an update sees them: in the first, nothing has moved, and ``old`` may be the policy itself."""
    gradient: Callable[[Params, Any, tuple[Sequences, TokenData]], Totals]
    """``(params, method_state, (sequences, data)) -> totals`` of any prompts of an update batch."""


class Opened(NamedTuple):
    """What an update batch gives before its first micro-batch runs."""

    measures: Measures
    counts: dict[str, Int[Array, ""]]
    empty: Bool[Array, ""]
    """No token carries weight."""


def open_update(method: Method, sequences: Sequences, masks: Masks, credit: Credit) -> Opened:
    """Weigh and count the tokens of an update batch."""
    measures = method.measures(credit, masks)
    empty = ~jnp.any(jnp.stack([jnp.any(measure != 0) for measure in jax.tree.leaves(measures)]))
    return Opened(measures, token_counts(sequences, masks, credit.mask), empty)


def bind(
    method: Method,
    passes: Passes,
    shardings: Any,
    *,
    updates_per_batch: int,
    epochs: int,
    reuse_policy_as_old: bool,
) -> Binding:
    """Bind ``method`` to a model, for ``epochs * updates_per_batch`` updates from each rollout batch.

    In the first update ``old`` is the gradient-free policy itself, in those after it a fact; without
    ``reuse_policy_as_old`` it is a fact in all.
    """
    schedule = (*np.arange(updates_per_batch * epochs, dtype=np.int32),)
    single = len(schedule) == 1
    wanted = method.needs if single and reuse_policy_as_old else method.needs | {"old"}
    mesh = shardings.step.mesh
    passes = split_over(mesh, passes)

    def facts(
        scores: Callable[[Params], Scores],
        blank: Array,
        params: Params,
        reference_params: Params | None,
        batch: Batch,
    ) -> LogProbs:
        log_prob = entropy = reference = None
        if wanted & {"old", "old_entropy"}:
            log_prob, entropy = scores(params)
        if "reference" in wanted:
            if reference_params is None:
                raise ValueError("the method compares with a reference model: pass reference_params to prepare")
            reference, _ = scores(reference_params)
        return LogProbs(
            # The live policy is no fact; each step fills it in.
            policy=blank,
            old=log_prob if "old" in wanted else None,
            old_entropy=entropy if "old_entropy" in wanted else None,
            reference=reference,
            rollout=batch.rollout if "rollout" in wanted else None,
        )

    def of_update(facts: LogProbs, update: Array | np.int32) -> LogProbs:
        if facts.old is None or not reuse_policy_as_old:
            return facts
        # No log-probability is infinite upwards: it stands for what only the gradient pass knows.
        return dataclasses.replace(facts, old=jnp.where(update == 0, jnp.inf, facts.old))

    def gradient(params: Params, method_state: Any, piece: tuple[Sequences, TokenData]) -> Totals:
        def term(log_prob: Array, entropy: Array, data: TokenData) -> tuple[Array, Reported]:
            facts, rollout, credit, masks, measures = data
            live = dataclasses.replace(facts, policy=log_prob, entropy=entropy)
            live = border.on_policy(live, live.old is None or jnp.isposinf(live.old))
            loss, metrics = method.loss(method_state, live, credit, masks, measures)
            assert live.old is not None  # the border gave it where it was no fact
            return loss, {**metrics, **distances(log_prob, live.old, rollout, credit.mask)}

        return passes.gradient(term, params, *piece)

    def assign(method_state: Any, batch: Batch, facts: LogProbs) -> tuple[Credit, Any, Metrics]:
        return method.credit(method_state, facts, batch.rewards, batch.masks)

    assign_jit = jax.jit(
        assign, out_shardings=(sharding.prompt_sharding(mesh), shardings.method_state, sharding.replicated(mesh))
    )

    def credit(state: TrainState, batch: Batch, facts: LogProbs) -> tuple[TrainState, Credit, Metrics]:
        assigned, method_state, metrics = assign_jit(state.method_state, batch, facts)
        return dataclasses.replace(state, method_state=method_state), assigned, metrics

    return Binding(schedule, passes, facts, credit, of_update, gradient)
