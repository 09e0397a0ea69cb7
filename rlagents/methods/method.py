"""A method: stages and a reduction, run in two halves by the learner or at once in a notebook."""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from rlagents.methods import border
from rlagents.methods.base import MethodError, State, Transform
from rlagents.methods.checks import check_fit, check_order, check_reduction
from rlagents.methods.compose import Chain, chain, merge
from rlagents.methods.reductions import Reduction
from rlagents.types import Credit, LogProbs, Masks, Mean, Metrics, Rewards, pytree


@pytree
class Measures:
    """Weights ``[p g t]`` of an update batch: the method's own, and those of the stages that bring one (else None)."""

    shared: Float[Array, "p g t"]
    own: tuple[Float[Array, "p g t"] | None, ...]


@dataclass(frozen=True)
class Method:
    """``loss = sum over tokens of measure * term``, summed over the terms of all stages.

    Hashable, so a jitted function may take it as a static argument. Raises :class:`MethodError` when the stages make no
    method (:func:`rlagents.methods.checks.check_order`) or the reduction is none.

    Three sizes: ``credit`` runs once per rollout batch on whole groups, ``measures`` once per update batch (the prompts
    of one optimizer step), ``loss`` on any slice of it along ``p`` or ``g``. Losses and gradients of the slices add up
    to the whole; nothing is divided anywhere else, so do not average over micro-batches.

    Sharded along ``p``, every stage that treats groups separately runs without a collective: a group lies whole on one
    device. What crosses devices is the reduction's count and the totals of metrics.
    """

    transform: Chain
    reduction: Reduction

    def __post_init__(self):
        check_order(self.transform.stages)
        check_reduction(self.reduction)

    @property
    def needs(self) -> frozenset[str]:
        """Facts to compute before the update; beside these, ``old`` whenever a rollout batch gets several updates."""
        return self.transform.needs

    def without(self, *names: str) -> "Method":
        """The same sentence without the stages of these names (``stage_names``), all of each name: an ablation.

        Raises :class:`MethodError` for a name that no stage has, or where what is left makes no method.
        """
        missing = sorted(set(names) - set(self.stage_names))
        if missing:
            raise MethodError(f"no stage is named {missing}; the stages are {list(self.stage_names)}.")
        kept = (stage for stage in self.transform.stages if stage.name not in names)
        return Method(chain(*kept), self.reduction)

    @property
    def stage_names(self) -> tuple[str, ...]:
        """Names of the stages, in order."""
        return tuple(stage.name for stage in self.transform.stages)

    def init(self) -> State:
        """The state of the stages that remember; a pytree of arrays, carried and saved by the learner."""
        return self.transform.init()

    def credit(self, state: State, logprobs: LogProbs, rewards: Rewards, masks: Masks) -> tuple[Credit, State, Metrics]:
        """What each token deserves, detached. ``policy`` and ``entropy`` are not read and may hold anything.

        Metrics: ``outcome`` (mean over valid members of what the environment said), ``members_kept`` and
        ``tokens_kept`` (shares that the filters left), and those of the stages.
        """
        check_fit(logprobs, masks, rewards)
        logprobs, rewards = border.facts(logprobs, rewards, masks)
        opening = Credit.opening(rewards, masks)
        credit, state, metrics = self.transform.credit(state, opening, logprobs, rewards, masks)
        credit = border.closing_credit(credit)
        ours = {
            "outcome": Mean.of(rewards.outcome, masks.valid),
            "members_kept": Mean.of(credit.valid, masks.valid),
            "tokens_kept": Mean.of(credit.mask, masks.trainable),
        }
        return credit, border.detach(state), merge(ours, border.detach(metrics), "method")

    def measures(self, credit: Credit, masks: Masks) -> Measures:
        """Weights of every token of an update batch; slice them with everything else."""
        return border.detach(Measures(self.reduction(credit.mask), self.transform.measures(credit, masks)))

    def loss(
        self, state: State, logprobs: LogProbs, credit: Credit, masks: Masks, measures: Measures
    ) -> tuple[Float[Array, ""], Metrics]:
        """The loss of a slice, differentiable with respect to ``logprobs.policy`` and ``logprobs.entropy``.

        Metrics: ``entropy`` (mean over trained tokens, where ``logprobs.entropy`` is given) and those of the stages.
        Those add across slices.
        """
        check_fit(logprobs, masks, credit=credit)
        credit = border.detach(credit)
        logprobs = border.live(logprobs, credit.mask)
        terms, metrics = self.transform.terms(state, logprobs, credit, masks)
        loss = jnp.zeros((), measures.shared.dtype)
        for term, own in zip(terms, measures.own, strict=True):
            if term is not None:
                measure = measures.shared if own is None else own
                loss += jnp.sum(jnp.where(credit.mask, measure * term, 0))
        ours = {} if logprobs.entropy is None else {"entropy": Mean.of(logprobs.entropy, credit.mask)}
        return loss, border.detach(merge(ours, metrics, "method"))

    def __call__(
        self, logprobs: LogProbs, rewards: Rewards, masks: Masks
    ) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
        """Loss and metrics of a batch taken whole, from the first state. Jit-able, differentiable in ``logprobs``."""
        credit, state, metrics = self.credit(self.init(), logprobs, rewards, masks)
        measures = self.measures(credit, masks)
        loss, more = self.loss(state, logprobs, credit, masks, measures)
        return loss, {name: mean.value for name, mean in merge(metrics, more, "a loss half").items()}


def method(transform: Transform | Chain, reduction: Reduction) -> Method:
    """A :class:`Method` of a chain (or a lone stage) and a reduction."""
    return Method(chain(transform), reduction)
