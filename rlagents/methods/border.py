"""The one border between data and what is differentiated, and the only ``stop_gradient`` on data.

Everything that enters a half passes here: floats are promoted to at least float32, whatever a mask hides becomes 0 (it
may have been NaN, and NaN times 0 is NaN), and facts are cut off from differentiation. Stages can then be written as
their formulas.
"""

from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from rlagents.methods.base import FACTS
from rlagents.numerics import promote
from rlagents.types import Credit, LogProbs, Masks, Rewards

T = TypeVar("T")


def detach(tree: T) -> T:
    """The same values; the gradient with respect to every leaf is exactly 0."""
    return jax.tree.map(jax.lax.stop_gradient, tree)


def on_policy(logprobs: LogProbs, where: Bool[Array, "p g t"] | bool = True) -> LogProbs:
    """``logprobs`` with ``old = stop_gradient(policy)``, so that every ratio is exactly 1; elsewhere ``old`` as it is.

    Right for the first update from a rollout batch: the policy being differentiated is the one that sampled. As a fact,
    ``old`` comes from another program, which rounds differently; a stage with a kink at ``old``, such as a penalty on
    any fall of the likelihood, would then charge about half of the tokens for rounding.
    """
    policy, old = detach(logprobs.policy), logprobs.old
    return replace(logprobs, old=policy if old is None or where is True else jnp.where(where, policy, old))


def _shown(x: Any, where: Bool[Array, "..."]) -> Array:
    x = promote(x) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else jnp.asarray(x)
    return jnp.where(where, x, jnp.zeros((), x.dtype))


def facts(logprobs: LogProbs, rewards: Rewards, masks: Masks) -> tuple[LogProbs, Rewards]:
    """What credit halves may see: facts of MODEL tokens and of the turns and members there are, all detached.

    ``policy`` is hidden behind NaN and ``entropy`` taken away: they belong to the loss half, and the learner may not
    have them yet.
    """
    tokens = jax.tree.map(lambda x: _shown(x, masks.trainable), logprobs)
    tokens = replace(tokens, policy=jnp.full(masks.kind.shape, jnp.nan, jnp.result_type(float)), entropy=None)
    turns = jnp.arange(rewards.turn_scores.shape[-1]) < masks.num_turns[..., None]
    turns = turns & masks.valid[..., None]
    said = jax.tree.map(lambda x: _shown(x, turns if jnp.ndim(x) == 3 else masks.valid), rewards)
    return detach((tokens, said))


def closing_credit(credit: Credit) -> Credit:
    """Credit after the last stage: detached, a dropped member has no trained token, advantages are 0 off the mask."""
    mask = credit.mask & credit.valid[..., None]
    advantages = None if credit.advantages is None else jnp.where(mask, credit.advantages, 0)
    marks = {name: mark & mask for name, mark in credit.marks.items()}
    return detach(replace(credit, mask=mask, advantages=advantages, marks=marks))


def live(logprobs: LogProbs, mask: Bool[Array, "p g t"]) -> LogProbs:
    """What loss halves may see: ``policy`` and ``entropy`` with their gradient, facts without, and 0 off the mask.

    Off the mask all log-probs are 0, so every ratio there is 1, and no gradient comes back from there.
    """
    shown = jax.tree.map(lambda x: _shown(x, mask), logprobs)
    return replace(shown, **{field: detach(getattr(shown, field)) for field in FACTS})
