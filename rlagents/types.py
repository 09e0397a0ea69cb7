"""The frozen pytrees that pass between rollouts, methods and the learner.

Letters, used everywhere and for nothing else: ``p`` prompts (= groups), ``g`` members of a group, ``l`` shared-prefix
tokens, ``t`` member tokens, ``s`` model turns, ``v`` vocabulary. Position ``t`` describes the token *being predicted*
at ``t``: ``LogProbs.policy[p, g, t] = log pi(tokens[p, g, t] | prefix[p], tokens[p, g, :t])``.

Facts are data; only ``LogProbs.policy`` and ``LogProbs.entropy`` are live (differentiable).
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def pytree(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen dataclass and a JAX pytree; every field is a child. ``x.replace(a=...)`` copies."""
    cls = dataclasses.dataclass(frozen=True)(cls)
    cls.replace = dataclasses.replace  # pyright: ignore[reportAttributeAccessIssue]
    return jax.tree_util.register_dataclass(cls)


class Kind(enum.IntEnum):
    """Who wrote a token. The loss may look at MODEL tokens only."""

    PAD = 0
    PROMPT = 1
    """Opening messages and the template's own scaffolding before the first model turn."""
    MODEL = 2
    """Sampled by the policy."""
    TOOL = 3
    """Observations and the template's scaffolding around them."""
    FORCED = 4
    """Put into the model's mouth (a think prefix): conditions what follows, never trained."""


@pytree
class Sequences:
    """Tokens of a batch, one shared prefix a group.

    The conversation of member ``g`` of prompt ``p`` is ``prefix[p, :prefix_length[p]] ++ tokens[p, g, :length[p, g]]``;
    positions of member tokens continue from ``prefix_length[p]``. Padding is on the right of both parts.
    """

    prefix: Int[Array, "p l"]
    prefix_length: Int[Array, " p"]
    tokens: Int[Array, "p g t"]
    length: Int[Array, "p g"]


@pytree
class LogProbs:
    """Log-probabilities (nats) and entropies (nats) of member tokens, float32, 0 where there is none.

    ``policy`` and ``entropy`` are live; all others are facts. A field is None where nothing asked for it.
    """

    policy: Float[Array, "p g t"]
    entropy: Float[Array, "p g t"] | None = None
    old: Float[Array, "p g t"] | None = None
    old_entropy: Float[Array, "p g t"] | None = None
    reference: Float[Array, "p g t"] | None = None
    rollout: Float[Array, "p g t"] | None = None
    """As recorded by the sampler: full-vocabulary distribution at the sampling temperature."""


@pytree
class Rewards:
    """What the environment said. Turn axes are padded with 0 / False beyond ``Masks.num_turns``."""

    outcome: Float[Array, "p g"]
    turn_scores: Float[Array, "p g s"]
    turn_tool_calls: Int[Array, "p g s"]
    turn_tool_successes: Int[Array, "p g s"]
    turn_void: Bool[Array, "p g s"]
    named: Mapping[str, Float[Array, "p g"]] = dataclasses.field(default_factory=dict)


@pytree
class Masks:
    """Who wrote what, where. ``valid`` is False for padded members and trajectories lost to an infrastructure fault."""

    kind: Int[Array, "p g t"]
    turn: Int[Array, "p g t"]
    """Index of the model turn a MODEL or FORCED token belongs to; -1 elsewhere."""
    num_turns: Int[Array, "p g"]
    valid: Bool[Array, "p g"]
    truncated: Bool[Array, "p g"]
    condition: Int[Array, "p g"]
    """Which reward token was injected; -1 for none."""

    @property
    def trainable(self) -> Bool[Array, "p g t"]:
        """MODEL tokens of valid members: the only tokens a loss may touch."""
        return (self.kind == Kind.MODEL) & self.valid[..., None]


@pytree
class Batch:
    """A rollout batch as the learner gets it. Every leaf has leading axis ``p``."""

    sequences: Sequences
    rewards: Rewards
    masks: Masks
    rollout: Float[Array, "p g t"]
    """Sampler log-probs, 0 where a token was not sampled."""


@pytree
class Credit:
    """What flows through the credit half. ``valid`` and ``mask`` only ever go from True to False.

    ``rewards [p g]`` are shaped rewards, ``mask [p g t]`` the tokens that may be trained, ``advantages [p g t]`` None
    until an estimator ran. ``marks`` are sets of tokens that a credit half, which sees what the environment said,
    leaves for a loss half, which does not.
    """

    rewards: Float[Array, "p g"]
    valid: Bool[Array, "p g"]
    mask: Bool[Array, "p g t"]
    advantages: Float[Array, "p g t"] | None = None
    marks: Mapping[str, Bool[Array, "p g t"]] = dataclasses.field(default_factory=dict)

    @classmethod
    def opening(cls, rewards: Rewards, masks: Masks) -> "Credit":
        """Credit before the first stage: the outcome as reward, the valid members and their MODEL tokens."""
        return cls(rewards=rewards.outcome, valid=masks.valid, mask=masks.trainable)


@pytree
class Mean:
    """A metric that adds across micro-batches: ``value = total / count`` (0 where ``count`` is 0)."""

    total: Float[Array, ""]
    count: Float[Array, ""]

    @classmethod
    def of(cls, values: Array, where: Array) -> "Mean":
        """Mean of ``values`` where ``where`` is True, in at least float32; values elsewhere may be NaN."""
        where = jnp.broadcast_to(where, jnp.shape(values))
        dtype = jnp.promote_types(jnp.result_type(values), jnp.float32)
        total = jnp.sum(jnp.where(where, values, 0).astype(dtype))
        return cls(total, jnp.sum(where).astype(dtype))

    def __add__(self, other: "Mean") -> "Mean":
        return Mean(self.total + other.total, self.count + other.count)

    @property
    def value(self) -> Array:
        """The mean itself."""
        return jnp.where(self.count > 0, self.total / jnp.maximum(self.count, 1e-30), 0.0)


@pytree
class Largest:
    """A metric of values >= 0 of which the largest counts: what two micro-batches give adds up to the larger.

    0 of nothing, which is the unit of that sum; NaN where a value is NaN.
    """

    value: Float[Array, ""]

    @classmethod
    def of(cls, values: Array, where: Array) -> "Largest":
        """Largest of ``values`` (>= 0) where ``where`` is True, in at least float32; elsewhere they may be NaN."""
        where = jnp.broadcast_to(where, jnp.shape(values))
        dtype = jnp.promote_types(jnp.result_type(values), jnp.float32)
        return cls(jnp.max(jnp.where(where, values, 0).astype(dtype), initial=0))

    def __add__(self, other: "Largest") -> "Largest":
        return Largest(jnp.maximum(self.value, other.value))


Metrics = dict[str, Mean]
"""What a method reports."""
Reported = Mapping[str, Mean | Largest]
"""What an update reports."""
Params = Any
"""A nested dict of arrays, as ``models`` makes it."""
