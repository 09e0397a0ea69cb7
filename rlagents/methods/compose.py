"""Composition: ``chain``, ``identity``, ``named_chain`` and ``masked``.

A composition is a flat sequence of stages, so ``chain`` is concatenation: associative, with unit ``identity()``.
``masked`` and ``named_chain`` are maps over the sequence and go through ``chain``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlagents.methods.arguments import check_function, kind_of
from rlagents.methods.base import MethodError, State, Transform
from rlagents.methods.checks import credit_answer, loss_answer
from rlagents.types import Credit, LogProbs, Masks, Metrics, Rewards

Where = Callable[[Masks], Bool[Array, "p g"] | Bool[Array, "p g t"]]


def merge(metrics: Metrics, more: Metrics, stage: str) -> Metrics:
    """Both, or a :class:`MethodError` where two stages write one name."""
    twice = sorted(metrics.keys() & more.keys())
    if twice:
        raise MethodError(
            f"stage '{stage}' writes the metrics {twice}, which an earlier stage wrote: tell the two apart with"
            " named_chain(('some_name', stage), ...)."
        )
    return metrics | more


@dataclass(frozen=True)
class Chain:
    """Stages in order. State is a tuple with one entry a stage.

    Credit flows through the credit halves in order; the terms of the loss halves are read independently of each other,
    so where a loss half stands among credit halves does not matter.
    """

    stages: tuple[Transform, ...]

    @property
    def needs(self) -> frozenset[str]:
        """All facts any stage needs."""
        return frozenset().union(*(stage.needs for stage in self.stages))

    def init(self) -> tuple[State, ...]:
        """First state of every stage."""
        return tuple(stage.init() for stage in self.stages)

    def credit(
        self, state: tuple[State, ...], credit: Credit, logprobs: LogProbs, rewards: Rewards, masks: Masks
    ) -> tuple[Credit, tuple[State, ...], Metrics]:
        """Run the credit halves in order."""
        metrics: Metrics = {}
        states = []
        for stage, memory in zip(self.stages, state, strict=True):
            if stage.credit is not None:
                answer = stage.credit(memory, credit, logprobs, rewards, masks)
                after, memory, more = credit_answer(stage.name, answer, masks)
                credit = _never_raised(credit, after)
                metrics = merge(metrics, more, stage.name)
            states.append(memory)
        return credit, tuple(states), metrics

    def measures(self, credit: Credit, masks: Masks) -> tuple[Float[Array, "p g t"] | None, ...]:
        """The own measure of every stage that has one, None for the others."""
        return tuple(stage.measure(credit, masks) if stage.measure else None for stage in self.stages)

    def terms(
        self, state: tuple[State, ...], logprobs: LogProbs, credit: Credit, masks: Masks
    ) -> tuple[tuple[Float[Array, "p g t"] | None, ...], Metrics]:
        """The per-token term of every stage with a loss half, None for the others."""
        metrics: Metrics = {}
        terms = []
        for stage, memory in zip(self.stages, state, strict=True):
            term = None
            if stage.loss is not None:
                term, more = loss_answer(stage.name, stage.loss(memory, logprobs, credit, masks), masks)
                metrics = merge(metrics, more, stage.name)
            terms.append(term)
        return tuple(terms), metrics


def _never_raised(before: Credit, after: Credit) -> Credit:
    """``after``, with no member or token back that an earlier stage had left out."""
    if after.valid is not before.valid:
        after = replace(after, valid=after.valid & before.valid)
    if after.mask is not before.mask:
        after = replace(after, mask=after.mask & before.mask)
    return after


def chain(*parts: Transform | Chain) -> Chain:
    """The stages of all parts, one after the other; nested chains are flattened."""
    stages: list[Transform] = []
    for part in parts:
        if not isinstance(part, Transform | Chain):
            raise MethodError(f"chain takes stages and chains, got {part!r}: call the stage's constructor first?")
        stages.extend(part.stages if isinstance(part, Chain) else (part,))
    return Chain(tuple(stages))


def identity() -> Chain:
    """The chain of no stages: the unit of ``chain``."""
    return Chain(())


def named_chain(*parts: tuple[str, Transform | Chain]) -> Chain:
    """``chain`` of named parts: every metric of a part becomes ``name/metric``, every stage name ``name/stage``."""
    return chain(*(_named(name, stage) for name, part in parts for stage in chain(part).stages))


def _named(name: str, stage: Transform) -> Transform:
    def prefix(half: Callable[..., Any], checked: Callable[..., Any]) -> Callable[..., Any]:
        def prefixed(*arguments):
            *_, masks = arguments
            *rest, metrics = checked(f"{name}/{stage.name}", half(*arguments), masks)
            return *rest, {f"{name}/{key}": value for key, value in metrics.items()}

        return prefixed

    return replace(
        stage,
        name=f"{name}/{stage.name}",
        credit=prefix(stage.credit, credit_answer) if stage.credit else None,
        loss=prefix(stage.loss, loss_answer) if stage.loss else None,
    )


def masked(part: Transform | Chain, where: Where) -> Chain:
    """Apply stages only where ``where(masks)`` holds: a ``[p g]`` answer selects members, ``[p g t]`` selects tokens.

    A credit half sees the whole group, and what it writes is kept only where the predicate holds; elsewhere credit
    stays as it was (advantages that nobody wrote are 0). A loss half, its measure and its metrics see the mask lowered
    to the predicate, and its term is 0 elsewhere. ``masked(chain(a, b), w)`` is ``chain(masked(a, w), masked(b, w))``.

    ``where`` decides each row by itself (micro-batches slice it), from masks alone. A ``[p g t]`` predicate with a
    stage that writes rewards or ``valid`` raises :class:`MethodError`: those belong to members, not tokens.
    """
    check_function("masked", "where", where, "a function from Masks to a bool for each member or token")

    def asked(masks: Masks) -> Array:
        chosen = where(masks)
        if getattr(chosen, "shape", None) not in (masks.valid.shape, masks.kind.shape) or chosen.dtype != bool:
            raise MethodError(
                f"the predicate of masked(...) answers with {kind_of(chosen)}; expected a bool for each member"
                f" {masks.valid.shape} or for each token {masks.kind.shape}: compare it with something first."
            )
        return chosen

    return chain(*(_masked(stage, asked) for stage in chain(part).stages))


def _masked(stage: Transform, where: Where) -> Transform:
    def lowered(credit: Credit, masks: Masks) -> Credit:
        return replace(credit, mask=credit.mask & _over_tokens(where(masks), masks))

    def credit_half(half):
        def credit(state, before, logprobs, rewards, masks):
            answer = half(state, before, logprobs, rewards, masks)
            after, state, metrics = credit_answer(stage.name, answer, masks)
            return _select(stage.name, where(masks), masks, after, before), state, metrics

        return credit

    def loss_half(half):
        def loss(state, logprobs, credit, masks):
            answer = half(state, logprobs, lowered(credit, masks), masks)
            term, metrics = loss_answer(stage.name, answer, masks)
            return jnp.where(_over_tokens(where(masks), masks), term, 0), metrics

        return loss

    def own_measure(measure):
        return lambda credit, masks: measure(lowered(credit, masks), masks)

    return replace(
        stage,
        credit=credit_half(stage.credit) if stage.credit else None,
        loss=loss_half(stage.loss) if stage.loss else None,
        measure=own_measure(stage.measure) if stage.measure else None,
    )


def _over_tokens(chosen: Array, masks: Masks) -> Bool[Array, "p g t"]:
    return jnp.broadcast_to(chosen if chosen.ndim == 3 else chosen[..., None], masks.kind.shape)


def _select(name: str, chosen: Array, masks: Masks, after: Credit, before: Credit) -> Credit:
    tokens = _over_tokens(chosen, masks)
    writes_members = after.rewards is not before.rewards or after.valid is not before.valid
    if chosen.ndim == 3:
        if writes_members:
            raise MethodError(
                f"masked('{name}', where) writes rewards or valid, which belong to members, but its predicate answers"
                " for tokens [p g t]: let where(masks) answer for members [p g]."
            )
        rewards, valid = before.rewards, before.valid
    else:
        rewards = jnp.where(chosen, after.rewards, before.rewards)
        valid = jnp.where(chosen, after.valid, before.valid)
    if after.advantages is None:
        advantages = None
    else:
        advantages = jnp.where(tokens, after.advantages, 0 if before.advantages is None else before.advantages)
    marks = {key: jnp.where(tokens, mark, before.marks.get(key, False)) for key, mark in after.marks.items()}
    return Credit(rewards, valid, jnp.where(tokens, after.mask, before.mask), advantages, marks)
