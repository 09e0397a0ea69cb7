"""Parameters from a checkpoint, each process reading the blocks that its devices hold."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from rlagents.models.config import DecoderConfig
from rlagents.models.modules import init_params
from rlagents.models.weights import TensorSource, Weight, file_names, weights
from rlagents.types import Params


def shapes(config: DecoderConfig) -> Params:
    """Shapes and dtypes of the parameters, without making them."""
    return jax.eval_shape(lambda key: init_params(config, key), jax.random.key(0))


def at(tree: Params, path: Sequence[str]) -> Any:
    """The leaf of a nested dict."""
    for key in path:
        tree = tree[key]
    return tree


def build_params(config: DecoderConfig, source: TensorSource, shardings: Params | None) -> Params:
    """Parameters read from ``source`` in ``config.param_dtype``, placed by ``shardings`` (a tree like the parameters).

    Each process reads the blocks that its devices hold, and one layer's at a time. Without ``shardings`` all goes to
    the default device. Raises ValueError where a tensor's shape is not what the config asks for.
    """
    expected = shapes(config)
    params: Params = {}
    for weight in weights(config):
        leaf = at(expected, weight.path)
        of_layer = leaf.shape[1:] if weight.path[0] == "layers" else leaf.shape
        for name in file_names(config, weight):
            found, wanted = tuple(source.shape(name)), weight.file_shape(of_layer)
            if found != wanted:
                raise ValueError(f"{name} has shape {found}; the config asks for {wanted}.")
        sharding = SingleDeviceSharding(jax.local_devices()[0]) if shardings is None else at(shardings, weight.path)
        node = params
        for key in weight.path[:-1]:
            node = node.setdefault(key, {})
        node[weight.path[-1]] = _place(config, source, weight, leaf, sharding)
    return params


def _place(config: DecoderConfig, source: TensorSource, weight: Weight, leaf: Any, sharding: Sharding) -> jax.Array:
    names = file_names(config, weight)
    blocks: dict[str, np.ndarray] = {}

    def block(index: Any) -> np.ndarray:
        # Devices that hold the same block share one reading of it.
        key = str(index)
        if key not in blocks:
            if weight.path[0] != "layers":
                blocks[key] = weight.from_file(source, names[0], leaf.shape, index).astype(leaf.dtype)
            else:
                layers = [weight.from_file(source, name, leaf.shape[1:], index[1:]) for name in names[index[0]]]
                blocks[key] = np.stack([layer.astype(leaf.dtype) for layer in layers])
        return blocks[key]

    return jax.make_array_from_callback(leaf.shape, sharding, block)
