"""Whether the arrays of a checkpoint are those that are asked for: names, shapes and dtypes."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

_SHOWN = 5


def check_same_tree(stored: Any, wanted: Any, where: str) -> None:
    """Raise ValueError, naming the first leaves that differ, unless both trees have the same leaves."""
    in_checkpoint, here = _leaves(stored), _leaves(wanted)
    differences = list(_differences(in_checkpoint, here))
    differences += [f"{name} is in the checkpoint alone" for name in in_checkpoint if name not in here]
    _refuse(
        differences,
        f"{where} holds another train state",
        "restore it with the model, optimizer and method that wrote it",
    )


def check_holds(stored: Any, wanted: Any, where: str) -> None:
    """Raise ValueError, naming the first leaves, unless every leaf of ``wanted`` is in ``stored``; it may hold more."""
    differences = list(_differences(_leaves(stored), _leaves(wanted)))
    _refuse(differences, f"{where} holds the weights of another decoder", "give a checkpoint of the same shapes")


def _differences(stored: dict[str, str], wanted: dict[str, str]) -> Iterator[str]:
    yield from (f"{name} is missing from the checkpoint" for name in wanted if name not in stored)
    for name, described in wanted.items():
        if name in stored and stored[name] != described:
            yield f"{name} is {stored[name]} in the checkpoint but {described} here"


def _refuse(differences: list[str], what: str, remedy: str) -> None:
    if differences:
        shown = "; ".join(differences[:_SHOWN]) + ("; ..." if len(differences) > _SHOWN else "")
        raise ValueError(f"{what} ({len(differences)} differences: {shown}); {remedy}")


def _leaves(tree: Any) -> dict[str, str]:
    """Path -> dtype and shape of every array; keys count as the integers they are stored as."""

    def describe(leaf: Any) -> str:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.eval_shape(jax.random.key_data, leaf)
        return f"{leaf.dtype}{list(leaf.shape)}"

    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: hasattr(x, "dtype"))
    return {jax.tree_util.keystr(path, simple=True, separator="/"): describe(leaf) for path, leaf in leaves}
