"""What this machine can do at most: float32 matrix products and copies, measured beside what is compared with them."""

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Machine(NamedTuple):
    """Measured rates."""

    flops_per_second: float
    """Of a large float32 matrix product."""
    bytes_per_second: float
    """Of a sum over a large array: read only, as weights and KV are."""


def measure(size: int = 2048, megabytes: int = 512, repeats: int = 5) -> Machine:
    """The best of ``repeats`` runs of each: a limit, not an average."""
    matrix = jnp.ones((size, size), jnp.float32)
    array = jnp.ones(megabytes * 2**18, jnp.float32)
    product = _best(jax.jit(lambda: matrix @ matrix), repeats)
    reading = _best(jax.jit(lambda: jnp.sum(array)), repeats)
    return Machine(2.0 * size**3 / product, megabytes * 2.0**20 / reading)


def _best(function: Callable[[], jax.Array], repeats: int) -> float:
    jax.block_until_ready(function())
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function())
        seconds.append(time.perf_counter() - start)
    return min(seconds)
