"""How far the policy is from those that it is compared with: numbers that grow before a run comes apart."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlagents.numerics import log_ratio
from rlagents.types import Largest, Mean, Reported


def distances(
    policy: Float[Array, "p g t"],
    old: Float[Array, "p g t"],
    rollout: Float[Array, "p g t"],
    trained: Bool[Array, "p g t"],
) -> Reported:
    """Metrics over trained tokens, without gradient.

    ``policy_ratio_max``: the largest ``policy / old``, 1 where an update is the first from its rollout batch.
    ``rollout_kl``: ``mean(r - 1 - log r)``, ``r = policy / rollout``, an unbiased estimate (k3) in nats a token of the
    divergence of the policy from what was sampled; it sees drift and a sampler that disagrees with the learner alike.
    ``rollout_gap``: ``mean |log r|``, nats. Log-ratios of the first two are bounded (:data:`numerics.LOG_RATIO_BOUND`).
    """
    policy = jax.lax.stop_gradient(policy)
    to_old, to_rollout = log_ratio(policy, old), log_ratio(policy, rollout)
    return {
        "policy_ratio_max": Largest.of(jnp.exp(to_old), trained),
        "rollout_kl": Mean.of(jnp.expm1(to_rollout) - to_rollout, trained),
        "rollout_gap": Mean.of(jnp.abs(policy - rollout), trained),
    }
