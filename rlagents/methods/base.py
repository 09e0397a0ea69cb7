"""The core type of the algebra: a stage, and the few words in which one is written.

A method maps ``(LogProbs, Rewards, Masks)`` to a loss in two halves. The *credit half* decides, once per rollout batch
and without gradient, what every token deserves; the *loss half* says, token by token and with gradient, what the policy
loses. A :class:`Transform` is one stage of that: it may have either half, or both.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array, Float

from rlagents.types import Credit, LogProbs, Masks, Metrics, Rewards

State = Any
"""A pytree of arrays that a stage carries from one rollout batch to the next; ``()`` where it remembers nothing."""

CreditHalf = Callable[[State, Credit, LogProbs, Rewards, Masks], tuple[Credit, State, Metrics]]
LossHalf = Callable[[State, LogProbs, Credit, Masks], tuple[Float[Array, "p g t"], Metrics]]
Measure = Callable[[Credit, Masks], Float[Array, "p g t"]]

FACTS = ("old", "old_entropy", "reference", "rollout")
"""Fields of ``LogProbs`` that are data. ``policy`` and ``entropy`` are live and belong to the loss half alone."""


class MethodError(ValueError):
    """A composition or a call that makes no sense. Raised while Python builds or traces it, never on a device."""


class Role(enum.IntEnum):
    """What a stage does, in the order in which credit flows through a method."""

    FILTER = 1
    """Lowers ``valid`` or ``mask``. Before the estimator, which takes its statistics over ``valid``.

    One that reads rewards sees them as the stages before it have shaped them: where reward means success, put it first.
    """
    REWARD = 2
    """Shapes ``rewards``. Before the estimator, which turns them into advantages."""
    ESTIMATOR = 3
    """Writes ``advantages`` from ``rewards``. Exactly one in a method."""
    RESHAPER = 4
    """Maps ``advantages`` to ``advantages`` (it may lower ``mask``). After the estimator."""
    SURROGATE = 5
    """The policy-gradient term of the loss. Exactly one in a method."""
    PENALTY = 6
    """Any other term of the loss."""


def _remembers_nothing() -> State:
    return ()


@dataclass(frozen=True)
class Transform:
    """One stage: ``(init, credit, loss)`` with a name, a role and what it asks to be computed for it.

    * ``credit(state, credit, logprobs, rewards, masks) -> (credit, state, metrics)``: whole groups, no gradient. It
      reads facts; ``logprobs.policy`` is NaN and ``logprobs.entropy`` None there. None passes credit on.
    * ``loss(state, logprobs, credit, masks) -> (term [p g t], metrics)``: any slice along ``p`` or ``g``, so nothing in
      it may look across rows. Gradient flows through ``policy`` and ``entropy`` only. None adds no term.
    * ``measure(credit, masks) -> weights [p g t]``: the term's own measure, for a paper with its own denominator;
      computed over the whole update batch like the method's reduction, which serves where this is None.
    * ``needs``: the facts that must be computed *before* the update for this stage. A surrogate's ``old`` is no need:
      where a rollout batch gets a single update it is ``stop_gradient(policy)``, and where it gets several the learner
      computes it anyway. A credit half that reads ``old`` needs it.

    A stage may rely on clean input: the border (:mod:`rlagents.methods.border`) has put 0 wherever the mask is False,
    stopped the gradient of every fact, and promoted every float to at least float32.
    """

    name: str
    role: Role
    needs: frozenset[str] = frozenset()
    init: Callable[[], State] = _remembers_nothing
    credit: CreditHalf | None = None
    loss: LossHalf | None = None
    measure: Measure | None = None

    def __post_init__(self):
        object.__setattr__(self, "needs", frozenset(self.needs))
        unknown = self.needs - set(FACTS)
        if unknown:
            raise MethodError(f"stage '{self.name}' needs {sorted(unknown)}; the facts there are: {', '.join(FACTS)}.")


PlainCredit = Callable[[Credit, LogProbs, Rewards, Masks], tuple[Credit, Metrics]]
PlainLoss = Callable[[LogProbs, Credit, Masks], tuple[Float[Array, "p g t"], Metrics]]


def parts(stage: str, half: str, answer: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """What a half returned, or a :class:`MethodError` naming stage and half if it is not a tuple of these parts."""
    if not isinstance(answer, tuple) or len(answer) != len(names):
        found = f"a tuple of {len(answer)}" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
        raise MethodError(
            f"the {half} half of stage '{stage}' returned {found}; expected ({', '.join(names)}): metrics may be {{}},"
            " but must be there."
        )
    return answer


def _stateless_credit(name: str, function: PlainCredit) -> CreditHalf:
    def credit(state, credit, logprobs, rewards, masks):
        answer = function(credit, logprobs, rewards, masks)
        credit, metrics = parts(name, "credit", answer, ("credit", "metrics"))
        return credit, state, metrics

    return credit


def _stateless_loss(function: PlainLoss) -> LossHalf:
    return lambda state, logprobs, credit, masks: function(logprobs, credit, masks)


def filter_stage(name: str, credit: PlainCredit, needs: frozenset[str] | set[str] = frozenset()) -> Transform:
    """A stage without memory that lowers ``valid`` or ``mask``. See :class:`Role` for where it stands."""
    return Transform(name, Role.FILTER, frozenset(needs), credit=_stateless_credit(name, credit))


def reward_stage(name: str, credit: PlainCredit, needs: frozenset[str] | set[str] = frozenset()) -> Transform:
    """A stage without memory that shapes ``rewards``."""
    return Transform(name, Role.REWARD, frozenset(needs), credit=_stateless_credit(name, credit))


def estimator(name: str, credit: PlainCredit, needs: frozenset[str] | set[str] = frozenset()) -> Transform:
    """A stage without memory that writes ``advantages``."""
    return Transform(name, Role.ESTIMATOR, frozenset(needs), credit=_stateless_credit(name, credit))


def reshaper(name: str, credit: PlainCredit, needs: frozenset[str] | set[str] = frozenset()) -> Transform:
    """A stage without memory that maps ``advantages`` to ``advantages``."""
    return Transform(name, Role.RESHAPER, frozenset(needs), credit=_stateless_credit(name, credit))


def surrogate(name: str, loss: PlainLoss, needs: frozenset[str] | set[str] = frozenset()) -> Transform:
    """The policy-gradient term, without memory."""
    return Transform(name, Role.SURROGATE, frozenset(needs), loss=_stateless_loss(loss))


def penalty(
    name: str, loss: PlainLoss, needs: frozenset[str] | set[str] = frozenset(), *, measure: Measure | None = None
) -> Transform:
    """Another term of the loss, without memory, on the method's measure or on its own."""
    return Transform(name, Role.PENALTY, frozenset(needs), loss=_stateless_loss(loss), measure=measure)


_REMEDIES = {
    "old": "for a single update per rollout batch pass on_policy(logprobs): old = stop_gradient(policy); otherwise"
    " pass the log-probs of the weights that sampled, computed before the first update",
    "old_entropy": "pass the entropy under the weights that sampled, computed before the first update",
    "reference": "pass the reference model's log-probs, or leave out the stage that compares with it",
    "rollout": "pass what the sampler recorded (Batch.rollout)",
    "entropy": "pass the policy's entropy: the model gives it beside the log-probs",
}


def fact(stage: str, logprobs: LogProbs, field: str) -> Float[Array, "p g t"]:
    """``logprobs.<field>``, or a :class:`MethodError` naming the stage, the field and what to do if it is None."""
    value = getattr(logprobs, field)
    if value is None:
        raise MethodError(
            f"stage '{stage}' reads LogProbs.{field}, which is None: {_REMEDIES[field]}. (The learner computes the"
            " facts that a stage declares in Transform.needs.)"
        )
    return value


def advantages_of(stage: str, credit: Credit) -> Float[Array, "p g t"]:
    """``credit.advantages``, or a :class:`MethodError` saying what is missing if no estimator has run."""
    if credit.advantages is None:
        raise MethodError(
            f"stage '{stage}' reads advantages, but no estimator ran before it: put one, such as group_advantage(...),"
            f" before '{stage}' in the chain."
        )
    return credit.advantages
