"""Penalties: further terms of the loss."""

import jax.numpy as jnp

from rlagents.methods.arguments import check_arguments
from rlagents.methods.base import Role, Transform, fact, penalty
from rlagents.methods.compose import Chain, identity
from rlagents.numerics import log_ratio, masked_mean, safe_divide
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

    >>> from rlagents.methods import specimen
    >>> specimen.terms(kl_penalty_k3(1.0))  # policy 0.6 where the reference has 0.4, and 0.3 where it has 0.6
    [[0.0, 0.07, 0.0], [0.0, 0.31, 0.0]]
    >>> specimen.slopes(kl_penalty_k3(1.0))
    [[0.0, 0.33, 0.0], [0.0, -1.0, 0.0]]
    """
    return _kl_penalty("kl_penalty_k3", coefficient, _k3)


def kl_penalty_k1(coefficient: float) -> Transform | Chain:
    """``term = coefficient * k1``, ``k1 = policy - reference`` per token: the right value, the wrong gradient.

    Its mean over tokens of the policy is ``KL(policy || reference)``. Its gradient by ``policy`` is the constant
    ``coefficient``, which does not know the reference and, over tokens sampled from the policy, averages to nothing
    but noise: as a loss it does not hold the policy anywhere. It is here to be compared with; as credit, in
    :func:`rlagents.methods.rewards.kl_in_reward`, it is right. (Schulman, 2020; arXiv 2505.17508 for the gradients.)

    Reads ``policy``, ``reference``; needs ``reference``. Metric: ``kl``. 0 is ``identity()``. ValueError below 0.

    >>> from rlagents.methods import specimen
    >>> specimen.terms(kl_penalty_k1(1.0))
    [[0.0, 0.41, 0.0], [0.0, -0.69, 0.0]]
    >>> specimen.slopes(kl_penalty_k1(1.0))  # the same everywhere, whatever the reference says
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    return _kl_penalty("kl_penalty_k1", coefficient, lambda d: d)


def kl_penalty_k2(coefficient: float) -> Transform | Chain:
    """``term = coefficient * k2``, ``k2 = (policy - reference)^2 / 2`` per token: a biased value, the right gradient.

    By ``policy`` it is ``coefficient * (policy - reference)``, and over tokens sampled from the policy the gradient of
    the weights is that of ``KL(policy || reference)``, the direction meant. (Schulman, 2020; arXiv 2505.17508.)

    Reads ``policy``, ``reference``; needs ``reference``. Metric: ``kl``, the mean of k2. 0 is ``identity()``. Raises
    ValueError below 0.

    >>> from rlagents.methods import specimen
    >>> specimen.slopes(kl_penalty_k2(1.0))
    [[0.0, 0.41, 0.0], [0.0, -0.69, 0.0]]
    """
    return _kl_penalty("kl_penalty_k2", coefficient, lambda d: 0.5 * jnp.square(d))


def _k3(d):
    # expm1 keeps the digits that exp(-d) - 1 loses where policy and reference nearly agree.
    return jnp.expm1(-d) + d


def _kl_penalty(name, coefficient, estimate):
    expected = "0 (no penalty) or more, such as 0.04"
    check_arguments(name, expected, lambda coefficient: coefficient >= 0, coefficient=coefficient)
    if coefficient == 0:
        return identity()

    def loss(logprobs, credit, masks):
        value = estimate(log_ratio(logprobs.policy, fact(name, logprobs, "reference")))
        return coefficient * value, {"kl": Mean.of(value, credit.mask)}

    return penalty(name, loss, {"reference"})


def entropy_regularizer(coefficient: float) -> Transform | Chain:
    """Keep the policy from hardening: ``term = -coefficient * H`` with the live entropy ``H`` (nats) of each token.

    Gradient flows through ``entropy`` alone: ``-coefficient``. Reads ``entropy``. 0 is ``identity()``. ValueError
    below 0. (Williams and Peng, 1991.)

    >>> from rlagents.methods import specimen
    >>> specimen.terms(entropy_regularizer(0.5))
    [[-0.1, -0.5, -0.3], [-0.1, -0.3, -0.5]]
    """
    expected = "0 or more, such as 0.001"
    check_arguments("entropy_regularizer", expected, lambda coefficient: coefficient >= 0, coefficient=coefficient)
    if coefficient == 0:
        return identity()

    def loss(logprobs, credit, masks):
        return -coefficient * fact("entropy_regularizer", logprobs, "entropy"), {}

    return penalty("entropy_regularizer", loss)


def adaptive_kl_penalty(initial: float, *, target: float, horizon: float) -> Transform:
    """:func:`kl_penalty_k3` whose coefficient follows the distance: more where it is above ``target``, less below.

    Once a rollout batch, ``b <- b * (1 + clip(d / target - 1, -0.2, 0.2) / horizon)``, where ``d`` is the mean of
    ``old - reference`` over trained tokens (nats, k1) and ``horizon`` counts rollout batches: after that many, a
    distance far off has changed ``b`` by a factor of about 1.2. Ziegler et al., arXiv 1909.08593, section 2.2, in units
    of batches. The state is ``b``, a scalar, and starts at ``initial``; a batch without trained tokens leaves it.

    Gradient as :func:`kl_penalty_k3`; none through ``b``. Reads ``policy``, ``reference``, ``old``; needs ``old`` and
    ``reference``. Metrics: ``kl``, ``kl_coefficient``. Raises ValueError unless ``initial`` and ``target``
    are above 0 and ``horizon`` is at least 1: far less could turn the coefficient negative.

    >>> from rlagents.methods import specimen
    >>> specimen.slopes(adaptive_kl_penalty(1.0, target=0.1, horizon=10.0))  # old is the reference: 1.0 becomes 0.98
    [[0.0, 0.33, 0.0], [0.0, -0.98, 0.0]]
    """
    expected = "initial and target above 0, horizon 1 or more, such as 0.1, 0.05 (nats) and 10 (rollout batches)"
    check_arguments(
        "adaptive_kl_penalty",
        expected,
        lambda initial, target, horizon: min(initial, target) > 0 and horizon >= 1,
        initial=initial,
        target=target,
        horizon=horizon,
    )

    def credit(coefficient, credit, logprobs, rewards, masks):
        old, reference = (fact("adaptive_kl_penalty", logprobs, field) for field in ("old", "reference"))
        distance = masked_mean(old - reference, credit.mask, axis=None)
        step = safe_divide(jnp.clip(safe_divide(distance, target) - 1, -0.2, 0.2), horizon)
        coefficient = jnp.where(jnp.any(credit.mask), coefficient * (1 + step), coefficient)
        return credit, coefficient, {"kl_coefficient": Mean.of(coefficient, jnp.array(True))}

    def loss(coefficient, logprobs, credit, masks):
        k3 = _k3(log_ratio(logprobs.policy, fact("adaptive_kl_penalty", logprobs, "reference")))
        return coefficient * k3, {"kl": Mean.of(k3, credit.mask)}

    return Transform(
        name="adaptive_kl_penalty",
        role=Role.PENALTY,
        needs=frozenset({"old", "reference"}),
        init=lambda: jnp.full((), initial, jnp.result_type(float)),
        credit=credit,
        loss=loss,
    )
