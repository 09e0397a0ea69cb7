"""What this machine can do at most: float32 products, reading, copying; measured beside what is compared with them.

    python -m experiments.benchmarks.machine

prints the rates as one JSON line.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

ROW = 2048
"""Entries of a row of the array that is read."""


class Machine(NamedTuple):
    """Measured rates."""

    flops_per_second: float
    """Of a large float32 matrix product."""
    bytes_per_second: float
    """Of reading a large array, as weights and KV are: the better of sums over its rows and a product with a vector."""
    copied_bytes_per_second: float
    """Of copying one into memory that is held already: bytes read and bytes written, both counted."""

    def at_best(self, other: "Machine") -> "Machine":
        """The higher rate of each: a limit is not an average."""
        return Machine(*map(max, self, other))


def measure(size: int = 2048, megabytes: int = 512, repeats: int = 12) -> Machine:
    """The best of ``repeats`` runs of each."""
    matrix = jnp.ones((size, size), jnp.float32)
    array = jnp.ones((megabytes * 2**18 // ROW, ROW), jnp.float32)
    product = _best(jax.jit(jnp.matmul), (matrix, matrix), repeats)
    # A sum of one long axis is slower: it is no limit of the memory.
    sums = _best(jax.jit(lambda array: jnp.sum(array, axis=1)), (array,), repeats)
    with_vector = _best(jax.jit(jnp.matmul), (array, jnp.ones(ROW, jnp.float32)), repeats)
    return Machine(
        2.0 * size**3 / product, array.nbytes / min(sums, with_vector), 2.0 * array.nbytes / _copy(array, repeats)
    )


def _copy(array: jax.Array, repeats: int) -> float:
    """Seconds of a copy into the memory of a donated array: fresh memory costs the system's time to hand it out."""
    program = jax.jit(lambda source, target: source + 1, donate_argnums=1, keep_unused=True)
    target = [jnp.zeros_like(array)]
    seconds = _best(lambda: target.append(program(array, target.pop())) or target[0], (), repeats)
    if jax.default_backend() == "cpu":
        # Writes that go past the cache, which a program of XLA's does not make.
        source, goal = np.asarray(array), np.asarray(target.pop()).copy()
        seconds = min(seconds, _best(lambda: np.copyto(goal, source), (), repeats))
    return seconds


def _best(function: Callable[..., object], arguments: tuple[jax.Array, ...], repeats: int) -> float:
    """Seconds of a call; arrays are arguments, for of constants the compiler computes the result itself."""
    jax.block_until_ready(function(*arguments))
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        seconds.append(time.perf_counter() - start)
    return min(seconds)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(json.dumps(measure()._asdict()))
