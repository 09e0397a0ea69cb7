"""Reductions: a measure over tokens. ``loss = sum(measure * term)``.

A reduction sees the mask of the whole update batch, before it is cut into micro-batches, and gives every token its
weight; it owns the only denominator there is. Tokens off the mask weigh 0, and an empty mask weighs 0 everywhere.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlagents.methods.arguments import check_arguments
from rlagents.numerics import masked_count, safe_divide

Reduction = Callable[[Bool[Array, "p g t"]], Float[Array, "p g t"]]


def token_mean() -> Reduction:
    """Every trained token weighs ``1 / N``, N = trained tokens of the update batch (DAPO, arXiv 2503.14476, eq. 8).

    Long trajectories weigh more than short ones.

    >>> from rlagents.methods import specimen
    >>> specimen.weights(token_mean(), kind=[[[2, 3, 3], [2, 2, 2]]])  # two tokens of the first are a tool's
    [[0.25, 0.0, 0.0], [0.25, 0.25, 0.25]]
    """

    def measure(mask):
        return safe_divide(mask, masked_count(mask, axis=None))

    return measure


def sequence_mean() -> Reduction:
    """A token of trajectory i weighs ``1 / (M * n_i)``: n_i its trained tokens, M the trajectories that have any.

    GRPO's mean over trajectories of means over tokens (DeepSeekMath, arXiv 2402.03300, eq. 3). ``n_i`` counts trained
    tokens only: what tools wrote in between lengthens nothing.

    >>> from rlagents.methods import specimen
    >>> specimen.weights(sequence_mean(), kind=[[[2, 3, 3], [2, 2, 2]]])
    [[0.5, 0.0, 0.0], [0.17, 0.17, 0.17]]
    """

    def measure(mask):
        lengths = masked_count(mask, axis=-1, keepdims=True)
        return safe_divide(mask, lengths * masked_count(lengths > 0, axis=None))

    return measure


def constant(length: int) -> Reduction:
    """Every trained token weighs ``1 / (M * length)``, M as in :func:`sequence_mean`, ``length`` in tokens (a budget).

    Dr. GRPO's reduction (arXiv 2503.20783): no trajectory's own length enters.

    >>> from rlagents.methods import specimen
    >>> specimen.weights(constant(10), kind=[[[2, 3, 3], [2, 2, 2]]])
    [[0.05, 0.0, 0.0], [0.05, 0.05, 0.05]]
    """
    expected = "a positive number of tokens, such as the member budget"
    check_arguments("constant", expected, lambda length: length > 0, length=length)

    def measure(mask):
        sequences = masked_count(jnp.any(mask, axis=-1), axis=None)
        return safe_divide(mask, length * sequences)

    return measure
