"""Penalties: further terms of the loss."""

import jax.numpy as jnp

from rlagents.methods.base import Transform, fact, penalty
from rlagents.methods.compose import Chain, identity
from rlagents.numerics import log_ratio
from rlagents.types import Mean


def kl_penalty_k3(coefficient: float) -> Transform | Chain:
    """Keep the policy near the reference: ``term = coefficient * k3``.

    ``k3 = exp(d) - d - 1``, ``d = reference - policy`` per token ``[p g t]``, clamped before ``exp``
    (:func:`rlagents.numerics.log_ratio`). Never negative; for tokens sampled from the policy its mean is
    ``KL(policy || reference)`` (Schulman, "Approximating KL divergence", 2020; GRPO, arXiv 2402.03300, eq. 4).

    The truth about the gradient: it is not that of the value this estimates. With respect to ``policy`` it is
    ``coefficient * (1 - exp(d))`` a token; over tokens sampled from the policy, the resulting gradient of the weights
    is that of ``KL(reference || policy)``, the *other* direction. Both directions vanish where the two agree. (The
    plainer k1 = ``-d`` has the same mean value, but the constant gradient 1, which does not know the reference and
    averages to no gradient of the weights at all.) Where the clamp binds the gradient is 0.

    Reads ``policy``, ``reference``; needs ``reference``. Metric: ``kl``, the mean of k3 without coefficient over
    trained tokens. ``kl_penalty_k3(0)`` is ``identity()`` and asks for no reference. Raises ValueError below 0.
    """
    if not coefficient >= 0:
        raise ValueError(f"kl_penalty_k3(coefficient={coefficient}): expected 0 (no penalty) or more, such as 0.04.")
    if coefficient == 0:
        return identity()

    def loss(logprobs, credit, masks):
        d = log_ratio(fact("kl_penalty_k3", logprobs, "reference"), logprobs.policy)
        # expm1 keeps the digits that exp(d) - 1 loses where policy and reference nearly agree.
        k3 = jnp.expm1(d) - d
        return coefficient * k3, {"kl": Mean.of(k3, credit.mask)}

    return penalty("kl_penalty_k3", loss, {"reference"})
