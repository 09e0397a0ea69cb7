"""AdamW with global-norm clipping, and the learning-rate schedule the metrics report."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rlagents.types import Params


class Optimizer(NamedTuple):
    """An optax gradient transformation that also tells its learning rate.

    ``init(params)``, ``update(gradient, state, params)`` are optax's; ``learning_rate(updates_applied)`` its schedule.
    """

    init: Callable[[Params], Any]
    update: Callable[..., tuple[Any, Any]]
    learning_rate: optax.Schedule


def make_optimizer(
    learning_rate: optax.Schedule,
    *,
    weight_decay: float = 0.0,
    b1: float = 0.9,
    b2: float = 0.999,
    epsilon: float = 1e-8,
    max_grad_norm: float = 1.0,
    decayed: Callable[[Params], Any] | None = None,
) -> Optimizer:
    """Return AdamW (Loshchilov & Hutter, 2019) after clipping the gradient to a global norm of ``max_grad_norm``.

    ``learning_rate`` maps the number of updates applied to a rate. ``decayed(params)`` marks the leaves that
    ``weight_decay`` applies to (all by default). Moments are float32 whatever the parameters' dtype.
    """
    return from_optax(
        optax.chain(
            optax.clip_by_global_norm(max_grad_norm),
            optax.adamw(learning_rate, b1=b1, b2=b2, eps=epsilon, weight_decay=weight_decay, mask=decayed),
        ),
        learning_rate,
    )


def from_optax(transformation: optax.GradientTransformation, learning_rate: optax.Schedule) -> Optimizer:
    """Make an ``Optimizer`` of any optax transformation that follows ``learning_rate``.

    The transformation sees parameters and gradients in float32: a bfloat16 second moment stops moving, because 0.001
    of it is less than its rounding.
    """

    def init(params: Params) -> Any:
        return transformation.init(_float32(params))

    def update(gradient: Any, state: Any, params: Params) -> tuple[Any, Any]:
        return transformation.update(_float32(gradient), state, _float32(params))

    return Optimizer(init, update, learning_rate)


def warm_up(schedule: optax.Schedule, warm_up_updates: int) -> optax.Schedule:
    """Raise the rate linearly over the first updates: ``schedule(k) * min(1, (k + 1) / warm_up_updates)``.

    The first update already moves (a rate of 0 would waste it). Any optax schedule fits inside: constant, cosine,
    linear. Raises ValueError for a negative ``warm_up_updates``.
    """
    if warm_up_updates < 0:
        raise ValueError(f"warm_up_updates must be 0 or more, found {warm_up_updates}")
    return lambda count: schedule(count) * jnp.minimum(1.0, (count + 1) / max(1, warm_up_updates))


def _float32(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), tree)
