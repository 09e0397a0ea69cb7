"""Filters: who is trained on. ``valid`` and ``mask`` only go from True to False; nothing is gathered.

``drop`` and ``mute`` differ in one thing: whether a member left out of the loss still counts in the statistics of its
group, which the estimator takes over ``valid``.
"""

from dataclasses import replace

from rlagents.methods.arguments import check_arguments, check_function, kind_of, name_of
from rlagents.methods.base import MethodError, Transform, filter_stage
from rlagents.methods.predicates import Predicate
from rlagents.numerics import rank_in_turn
from rlagents.types import Mean


def drop(which: Predicate) -> Transform:
    """Leave members out of the loss *and* of their group's statistics: these are taken over the survivors.

    ``valid <- valid and not which``, and ``mask`` with it. Reads what the predicate reads; no gradient; groups are
    treated separately. Metric: ``dropped/<predicate>``, the share of the members that were valid before.

    >>> from rlagents.methods import predicates, specimen
    >>> specimen.trained(drop(predicates.failed_tools))
    [[1, 1, 1], [0, 0, 0]]
    >>> specimen.advantages(drop(predicates.failed_tools))  # the survivor has nobody to be better than
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """

    check_function("drop", "which", which, "a predicate such as predicates.truncated")

    def credit(credit, logprobs, rewards, masks):
        out = _answer(which, credit, rewards, masks)
        kept = replace(credit, valid=credit.valid & ~out, mask=credit.mask & ~out[..., None])
        return kept, {f"dropped/{name_of(which)}": Mean.of(out, credit.valid)}

    return filter_stage(f"drop_{name_of(which)}", credit)


def mute(which: Predicate) -> Transform:
    """Leave members out of the loss, but not out of their group's statistics: only ``mask`` is lowered.

    So do the released codes of TAO-RL (arXiv 2606.03762) and SimpleTIR (arXiv 2509.02479), which multiply the loss mask
    and leave the rewards in the group's mean and std. Reads what the predicate reads; no gradient; groups are treated
    separately. Metric: ``muted/<predicate>``, the share of valid members.

    >>> from rlagents.methods import predicates, specimen
    >>> specimen.advantages(mute(predicates.failed_tools))
    [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    """

    check_function("mute", "which", which, "a predicate such as predicates.truncated")

    def credit(credit, logprobs, rewards, masks):
        out = _answer(which, credit, rewards, masks)
        muted = replace(credit, mask=credit.mask & ~out[..., None])
        return muted, {f"muted/{name_of(which)}": Mean.of(out, credit.valid)}

    return filter_stage(f"mute_{name_of(which)}", credit)


def mute_turn_beginnings(num_tokens: int) -> Transform:
    """Take no loss on the first ``num_tokens`` sampled tokens of every turn, such as a think prefix nobody forced.

    ``mask[t] <- mask[t] and #{MODEL tokens before t in its turn} >= num_tokens``. A prefix that is forced is never
    trained anyway. Reads ``masks``; no gradient; rows are treated separately. Raises ValueError below 1.

    >>> from rlagents.methods import specimen
    >>> specimen.trained(mute_turn_beginnings(1))
    [[0, 0, 1], [0, 1, 0]]
    """
    check_arguments(
        "mute_turn_beginnings", "1 token or more", lambda num_tokens: num_tokens >= 1, num_tokens=num_tokens
    )

    def credit(credit, logprobs, rewards, masks):
        place = rank_in_turn(masks.turn, rewards.turn_scores.shape[-1], where=masks.trainable)
        return replace(credit, mask=credit.mask & (place >= num_tokens)), {}

    return filter_stage("mute_turn_beginnings", credit)


def _answer(which, credit, rewards, masks):
    out = which(credit, rewards, masks)
    if getattr(out, "shape", None) != masks.valid.shape or out.dtype != bool:
        raise MethodError(
            f"the predicate {name_of(which)} answers with {kind_of(out)}; expected a bool for each member, shape"
            f" {masks.valid.shape}: True for those to leave out."
        )
    return out
