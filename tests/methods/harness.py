"""Run a method whole, or its loss half on a slice, with every gradient; compiled once per method and shape."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlagents.methods import Method


class Run(NamedTuple):
    """What came out; ``gradients`` of the loss is ``(LogProbs, Rewards)``, of which int fields mean nothing."""

    loss: Any
    credit: Any
    state: Any
    measures: Any
    credit_metrics: Any
    loss_metrics: Any
    gradients: Any

    @property
    def metrics(self):
        """Of both halves."""
        return self.credit_metrics | self.loss_metrics


def whole(method: Method, logprobs, rewards, masks) -> Run:
    """Both halves from the first state; the gradient goes through the credit half too, where it must die."""

    def loss_of(floats):
        logprobs, rewards = floats
        credit, state, metrics = method.credit(method.init(), logprobs, rewards, masks)
        measures = method.measures(credit, masks)
        loss, more = method.loss(state, logprobs, credit, masks, measures)
        return loss, (credit, state, measures, metrics, more)

    both = jax.value_and_grad(loss_of, has_aux=True, allow_int=True)
    (loss, (credit, state, measures, metrics, more)), gradients = both((logprobs, rewards))
    return Run(loss, credit, state, measures, metrics, more, gradients)


def part(method: Method, state, logprobs, credit, masks, measures):
    """Loss, metrics and gradient by LogProbs of a slice."""

    def loss_of(logprobs):
        return method.loss(state, logprobs, credit, masks, measures)

    return jax.value_and_grad(loss_of, has_aux=True)(logprobs)


@functools.cache
def jitted(function, method: Method):
    """``function`` of this method, jitted; in haste, for the laws ask many small programs a few times each."""
    return jax.jit(functools.partial(function, method), compiler_options={"xla_backend_optimization_level": 0})


def run(method: Method, batch) -> Run:
    """:func:`whole`, jitted, with NumPy leaves."""
    return jax.tree.map(np.asarray, jitted(whole, method)(*jax.tree.map(jnp.asarray, batch)))


def run_part(method: Method, state, logprobs, credit, masks, measures):
    """:func:`part`, jitted, with NumPy leaves."""
    arguments = jax.tree.map(jnp.asarray, (state, logprobs, credit, masks, measures))
    return jax.tree.map(np.asarray, jitted(part, method)(*arguments))


def values(metrics):
    """The value of every metric, in float64."""
    return {name: np.float64(mean.total) / max(mean.count, 1) for name, mean in metrics.items()}


def assert_close(a, b, *, relative=2e-5, floor=1e-30):
    """Every leaf within ``relative`` of the largest magnitude of its counterpart, or of ``floor`` if that is larger.

    A sum of terms of size 1 may cancel to nothing; its rounding does not: ``floor=1`` says so.
    """
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.shape == y.shape
        scale = np.max(np.abs(y), initial=0.0) if y.dtype != bool else 1.0
        np.testing.assert_allclose(x, y, rtol=0, atol=relative * max(scale, floor))


def assert_same(a, b):
    """Every leaf equal, bit for bit (NaN equals NaN)."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
