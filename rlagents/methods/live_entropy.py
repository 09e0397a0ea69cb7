"""An entropy bonus whose gradient also flows through the entropy: a factor on the advantages of a surrogate."""

from dataclasses import replace

import jax.numpy as jnp

from rlagents.methods.base import LossHalf, MethodError, Role, Transform, advantages_of, fact
from rlagents.methods.checks import credit_answer, loss_answer
from rlagents.methods.compose import Chain, chain
from rlagents.methods.exploration import (
    Enters,
    Which,
    check_bonus,
    highest,
    multiplied,
    over_trajectory,
)
from rlagents.types import Mean

_MARK = "live_entropy_bonus"
_SUFFIX = "_with_live_entropy_bonus"


def with_live_entropy_bonus(
    surrogate: Transform | Chain,
    coefficient: float,
    *,
    which: Which,
    top_fraction: float = 1.0,
    enters: Enters = multiplied,
) -> Transform:
    """``surrogate``, with ``enters(A[t], coefficient * gate[t] * z[t])`` in place of ``A[t]`` and ``z`` of live ``H``.

    :func:`rlagents.methods.exploration.entropy_bonus` without its stop-gradient, as TAO-RL's released code has it
    (arXiv 2606.03762): ``z = (H - mean_t H) / (std_t H + 1e-8)`` over the trajectory, ``H`` being the entropy of the
    policy that is updated. Gradient flows through ``policy`` as in the surrogate, and through ``entropy``: with
    ``multiplied`` and no clip it is that of ``-r A coefficient z``, which raises the doubt of gated tokens where
    ``A > 0`` and lowers it where ``A < 0``. The gate is a choice of tokens and carries none.

    Takes the place of the surrogate. Reads what the surrogate reads, live ``entropy``, and what ``which`` reads; marks
    its tokens in ``Credit.marks``. Rows are treated separately. Metric: ``live_bonus_tokens`` (share of trained tokens
    behind the gate), and the surrogate's.

    Raises ValueError for a ``top_fraction`` outside ``(0, 1]``, and :class:`MethodError` for what is not one surrogate.

    >>> from rlagents.methods import clipped_surrogate, exploration, specimen
    >>> live = with_live_entropy_bonus(clipped_surrogate(0.9, 0.9), 0.1, which=exploration.after_successful_call)
    >>> specimen.slopes(live)  # ratios 1, 1.5, 1 and 1, 0.5, 1; the second member's call failed
    [[-1.0, -1.68, -1.0], [1.0, 0.5, 1.0]]
    >>> specimen.slopes(live, by="entropy")
    [[0.03, 0.03, -0.05], [0.0, 0.0, 0.0]]
    """
    check_bonus("with_live_entropy_bonus", coefficient, top_fraction, which, enters)
    inner, pushes = _only_surrogate(surrogate)

    def credit(state, credit, logprobs, rewards, masks):
        metrics = {}
        if inner.credit is not None:
            answer = inner.credit(state, credit, logprobs, rewards, masks)
            credit, state, metrics = credit_answer(inner.name, answer, masks)
        return replace(credit, marks={**credit.marks, _MARK: which(rewards, masks)}), state, metrics

    def loss(state, logprobs, credit, masks):
        entropy = fact("with_live_entropy_bonus", logprobs, "entropy")
        gate = credit.mask & credit.marks[_MARK] & highest(entropy, credit.mask, top_fraction)
        bonus = jnp.where(gate, coefficient * over_trajectory(entropy, credit.mask), 0)
        shaped = replace(credit, advantages=enters(advantages_of("with_live_entropy_bonus", credit), bonus))
        term, metrics = loss_answer(inner.name, pushes(state, logprobs, shaped, masks), masks)
        return term, metrics | {"live_bonus_tokens": Mean.of(gate, credit.mask)}

    return replace(inner, name=inner.name + _SUFFIX, credit=credit, loss=loss)


def _only_surrogate(part: Transform | Chain) -> tuple[Transform, LossHalf]:
    stages = chain(part).stages
    lone = len(stages) == 1 and stages[0].role is Role.SURROGATE and not stages[0].name.endswith(_SUFFIX)
    if not lone or stages[0].loss is None:
        raise MethodError(
            "with_live_entropy_bonus takes one surrogate, such as clipped_surrogate(0.2, 0.2), and got"
            f" {[stage.name for stage in stages]}: put other stages beside it in the chain."
        )
    return stages[0], stages[0].loss
