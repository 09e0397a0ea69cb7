"""The whole of what training changes: one pytree, created under jit where it will live."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Int, Key

from rlagents import sharding
from rlagents.learner.optimizer import Optimizer
from rlagents.types import Params, pytree


@pytree
class TrainState:
    """All that a checkpoint must hold to continue as if nothing had happened.

    ``step`` counts updates tried; ``step - skipped`` is the number applied, and the optimizer's own count. ``key`` is
    the run's key and never changes: whatever is random folds in what it is for. ``method_state`` is what the method
    remembers between rollout batches.
    """

    params: Params
    optimizer_state: Any
    method_state: Any
    step: Int[Array, ""]
    key: Key[Array, ""]
    nonfinite_in_a_row: Int[Array, ""]
    skipped: Int[Array, ""]


def _initial(params: Params, optimizer: Optimizer, method_state: Any, key: Any) -> TrainState:
    zero = jnp.zeros((), jnp.int32)
    # Copies, whatever jit makes of an output that is its input: buffers shared with the caller would be deleted by the
    # first donated step.
    return TrainState(
        params=jax.tree.map(jnp.copy, params),
        optimizer_state=optimizer.init(params),
        method_state=jax.tree.map(jnp.asarray, method_state),
        step=zero,
        key=jnp.copy(key),
        nonfinite_in_a_row=zero,
        skipped=zero,
    )


def state_shardings(params: Params, optimizer: Optimizer, method_state: Any, logical_axes: Any, mesh: Mesh) -> Any:
    """Derive where each leaf of a ``TrainState`` lives, as a ``TrainState`` of ``NamedSharding``.

    ``params`` may be abstract (``jax.eval_shape``). Optimizer moments follow the parameters; all else is replicated.
    Raises ValueError if the mesh does not fit the parameters.
    """
    state = abstract_state(params, optimizer, method_state)
    param_shardings = sharding.tree_shardings(logical_axes, state.params, mesh)
    return sharding.like_params(state, state.params, param_shardings, mesh)


def abstract_state(params: Params, optimizer: Optimizer, method_state: Any, shardings: Any = None) -> TrainState:
    """Return shapes, dtypes and, where given, ``shardings`` of a ``TrainState``: what a checkpoint is restored into."""
    state = jax.eval_shape(lambda p, m, k: _initial(p, optimizer, m, k), params, method_state, jax.random.key(0))
    if shardings is None:
        return state
    return jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), state, shardings
    )


def create_state(params: Params, optimizer: Optimizer, method_state: Any, key: Array, shardings: Any) -> TrainState:
    """Create the state under jit, every leaf directly in its sharding; nothing is ever whole on one device.

    ``params`` are copied: they stay the caller's (to sample from, or as the reference).
    """
    create = jax.jit(lambda p, m, k: _initial(p, optimizer, m, k), out_shardings=shardings)
    return create(params, method_state, key)


def own_copy(params: Params, shardings: Any = None) -> Params:
    """Copy ``params`` to buffers of their own (a reference, a sampler's weights) which no donated step can delete."""
    return jax.jit(lambda tree: jax.tree.map(jnp.copy, tree), out_shardings=shardings)(params)
