"""What a stage makes of one tiny batch: one prompt, two members, three tokens in two turns.

The first member succeeds: it says one token, its call succeeds, and it says two more. The second fails: two tokens, a
call that fails although its turn was of some use (score 0.75), and one token more. Every stage's docstring shows what
the stage makes of it. Numbers are rounded to two places; facts given by name take the place of the batch's own.

>>> from rlagents.methods import chain, group_advantage, soften_negative_turns
>>> advantages(chain(group_advantage(ddof=0, epsilon=0), soften_negative_turns()))
[[1.0, 1.0, 1.0], [-0.25, -0.25, -1.0]]
>>> advantages(group_advantage(ddof=0, epsilon=0), outcome=[[5.0, 1.0]], truncated=[[False, True]])
[[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]]
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from rlagents.methods import border
from rlagents.methods.base import MethodError, Role, Transform
from rlagents.methods.compose import Chain, chain
from rlagents.methods.estimators import group_advantage
from rlagents.methods.method import Method
from rlagents.methods.reductions import Reduction
from rlagents.methods.surrogates import policy_gradient
from rlagents.types import Credit, Kind, LogProbs, Masks, Rewards

T = TypeVar("T", LogProbs, Rewards, Masks)
_SUCCESS, _FAILURE = [0.5, 0.4, 0.5], [0.5, 0.6, 0.5]  # probabilities under the weights that sampled


def batch(**facts: Any) -> tuple[LogProbs, Rewards, Masks]:
    """The batch ``[1 2 3]``, with ``facts`` in place of the fields of these names. Raises TypeError for other names."""
    one = jnp.ones((1, 2), jnp.int32)
    trees = (
        LogProbs(
            policy=jnp.log(jnp.array([[[0.5, 0.6, 0.5], [0.5, 0.3, 0.5]]])),
            entropy=jnp.array([[[0.2, 1.0, 0.6], [0.2, 0.6, 1.0]]]),
            old=jnp.log(jnp.array([[_SUCCESS, _FAILURE]])),
            old_entropy=jnp.array([[[0.2, 1.0, 0.6], [0.2, 0.6, 1.0]]]),
            reference=jnp.log(jnp.array([[_SUCCESS, _FAILURE]])),
            rollout=jnp.log(jnp.array([[[0.5, 0.8, 0.5], [0.5, 0.2, 0.5]]])),
        ),
        Rewards(
            outcome=jnp.array([[1.0, 0.0]]),
            turn_scores=jnp.array([[[1.0, 1.0], [0.75, 0.0]]]),
            turn_tool_calls=jnp.array([[[1, 0], [1, 0]]]),
            turn_tool_successes=jnp.array([[[1, 0], [0, 0]]]),
            turn_void=jnp.zeros((1, 2, 2), bool),
            named={"format": jnp.array([[1.0, 0.0]])},
        ),
        Masks(
            kind=jnp.full((1, 2, 3), Kind.MODEL),
            turn=jnp.array([[[0, 1, 1], [0, 0, 1]]]),
            num_turns=2 * one,
            valid=one > 0,
            truncated=one < 0,
            condition=jnp.array([[1, 0]]),
        ),
    )
    unknown = facts.keys() - {field.name for tree in trees for field in fields(tree)}
    if unknown:
        raise TypeError(f"{sorted(unknown)} are no fields of LogProbs, Rewards or Masks.")
    return _given(trees[0], facts), _given(trees[1], facts), _given(trees[2], facts)


def credit(stages: Transform | Chain, **facts: Any) -> Credit:
    """Credit ``[1 2]`` and ``[1 2 3]`` after ``stages``; without an estimator of theirs, ``A`` is 1 and -1."""
    whole = _whole(stages)
    return whole.credit(whole.init(), *batch(**facts))[0]


def shaped(stages: Transform | Chain, **facts: Any) -> list:
    """Rewards ``[2]`` after ``stages``."""
    return _rounded(credit(stages, **facts).rewards)


def trained(stages: Transform | Chain, **facts: Any) -> list:
    """Which tokens ``[2 3]`` are trained after ``stages``: 1 or 0."""
    return credit(stages, **facts).mask[0].astype(int).tolist()


def advantages(stages: Transform | Chain, **facts: Any) -> list:
    """Advantages ``[2 3]`` after ``stages``."""
    return _rounded(credit(stages, **facts).advantages)


def terms(stages: Transform | Chain, **facts: Any) -> list:
    """What each token ``[2 3]`` pays by the last of ``stages`` that has a loss half, before any measure.

    Raises MethodError where none has.
    """
    whole, (logprobs, rewards, masks) = _whole(stages), batch(**facts)
    paying = [stage for stage in chain(stages).stages if stage.loss is not None]
    if not paying:
        raise MethodError(f"none of {[stage.name for stage in chain(stages).stages]} has a loss half: no token pays.")
    at = whole.transform.stages.index(paying[-1])
    given, state, _ = whole.credit(whole.init(), logprobs, rewards, masks)
    found, _ = whole.transform.terms(state, border.live(logprobs, given.mask), given, masks)
    return _rounded(found[at])


def slopes(stages: Transform | Chain, by: str = "policy", **facts: Any) -> list:
    """Derivative ``[2 3]`` of the sum of all tokens' terms by their log-probability, or by their ``entropy``.

    A lone penalty comes without a surrogate's term: every advantage is 0.
    """
    lone = all(stage.role is Role.PENALTY for stage in chain(stages).stages)
    given = batch(**({"outcome": [[0.0, 0.0]]} | facts if lone else facts))
    gradient = jax.grad(lambda logprobs: _whole(stages)(logprobs, *given[1:])[0])(given[0])
    return _rounded(getattr(gradient, by))


def weights(reduction: Reduction, **facts: Any) -> list:
    """What each token ``[2 3]`` weighs by a reduction."""
    return _rounded(reduction(batch(**facts)[2].trainable))


def _whole(stages: Transform | Chain) -> Method:
    parts = list(chain(stages).stages)
    if all(stage.role is not Role.ESTIMATOR for stage in parts):
        before = [place for place, stage in enumerate(parts, 1) if stage.role < Role.ESTIMATOR]
        parts.insert(max(before, default=0), group_advantage(ddof=0, epsilon=0))
    if all(stage.role is not Role.SURROGATE for stage in parts):
        parts.append(policy_gradient())
    return Method(chain(*parts), lambda mask: mask.astype(jnp.float32))


def _given(tree: T, facts: Mapping[str, Any]) -> T:
    names = [field.name for field in fields(tree) if field.name in facts]
    return replace(tree, **{name: jax.tree.map(jnp.asarray, facts[name], is_leaf=_is_nested) for name in names})


def _is_nested(value: Any) -> bool:
    return isinstance(value, list)


def _rounded(values: Any) -> list:
    def places(nested: Any) -> Any:
        return [places(x) for x in nested] if isinstance(nested, list) else round(nested, 2) + 0.0  # no minus zero

    return places(values[0].tolist())
