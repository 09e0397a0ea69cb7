"""Weights from and to Hugging Face folders: ``config.json``, safetensors, tokenizer."""

import json
import os
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
from jax.experimental import multihost_utils

from rlagents.models.config import DecoderConfig
from rlagents.models.families import read_config, write_config
from rlagents.models.loading import at, build_params, shapes
from rlagents.models.tensor_files import TensorFiles, write_tensors
from rlagents.models.weights import Weight, file_names, weights
from rlagents.types import Params

CONFIG = "config.json"


class Tokenizer(Protocol):
    """What is asked of a tokenizer: transformers' tokenizers have it."""

    bos_token_id: int | None
    eos_token_id: int | None
    pad_token_id: int | None

    def save_pretrained(self, save_directory: str) -> Any:
        """Write the tokenizer's files."""
        ...


def load_config(path: str | os.PathLike, *, dtype: Any) -> DecoderConfig:
    """The decoder described by ``path/config.json``, weights and computation in ``dtype``.

    Raises FileNotFoundError without that file, ValueError where it is no JSON, lacks or misstates a key, or asks for an
    unsupported ``model_type`` or feature.
    """
    file = Path(path) / CONFIG
    if not file.exists():
        found = sorted(p.name for p in Path(path).iterdir()) if Path(path).is_dir() else "no such folder"
        raise FileNotFoundError(f"{file} is not there; found: {found}.")
    try:
        contents = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:  # what is no UTF-8 raises a kind of ValueError, too
        raise ValueError(f"{file} is not JSON in UTF-8 ({error}): copy or download it again.") from error
    return read_config(contents, str(file), dtype)


def load_pretrained(
    path: str | os.PathLike, *, dtype: Any, shardings: Params | None = None
) -> tuple[DecoderConfig, Params]:
    """The decoder in a folder with ``config.json`` and safetensors, one file or sharded.

    ``shardings`` is a tree like the parameters; each process reads only the blocks that its devices hold, one layer at
    a time. Without it, all goes to the default device. ``load_config`` gives what is needed to make the tree.

    Raises FileNotFoundError for a missing file, ValueError for a truncated file, an unsupported ``model_type`` or
    feature, a missing tensor, one that this decoder would not use, or a shape that does not fit the config.
    """
    config = load_config(path, dtype=dtype)
    files = TensorFiles(Path(path))
    expected = {name for weight in weights(config) for name in file_names(config, weight)}
    missing = sorted(expected - files.names)
    if missing:
        raise ValueError(f"{path} lacks {len(missing)} tensors of its config, the first is {missing[0]!r}.")
    # A tied head may be written twice; rotary frequencies are computed.
    spare = {name for name in files.names if name == "lm_head.weight" or name.endswith("rotary_emb.inv_freq")}
    unused = sorted(files.names - expected - spare)
    if unused:
        raise ValueError(f"{path} has {len(unused)} tensors that its config has no use for, first {unused[0]!r}.")
    return config, build_params(config, files, shardings)


def save_pretrained(
    path: str | os.PathLike,
    config: DecoderConfig,
    params: Params,
    tokenizer: Tokenizer | None = None,
    *,
    max_shard_bytes: int = 5_000_000_000,
) -> None:
    """Write a folder that transformers loads; weights in the dtype that they have, without padding of the vocabulary.

    Every process of a multi-process run must call this; process 0 writes. One shard at a time is in host memory. The
    config is written last, so that a folder without ``config.json`` is known to be half-written.

    Raises ValueError when no supported family has the config's combination of features.
    """
    writes = jax.process_index() == 0
    contents = write_config(config)
    folder = Path(path)
    places = {
        name: (weight, layer) for weight in weights(config) for layer, name in enumerate(file_names(config, weight))
    }
    if writes:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).unlink(missing_ok=True)

    def tensor(name: str) -> np.ndarray | None:
        weight, layer = places[name]
        leaf = at(params, weight.path)
        array = _on_host(leaf[layer] if weight.path[0] == "layers" else leaf)[: _rows(config, weight)]
        return weight.to_file(array) if writes else None

    write_tensors(folder, _sizes(config, params), tensor, max_shard_bytes)
    if writes:
        if tokenizer is not None:
            tokenizer.save_pretrained(str(folder))
            for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
                contents[key] = getattr(tokenizer, key)
        (folder / CONFIG).write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")


def _sizes(config: DecoderConfig, params: Params) -> dict[str, int]:
    """Bytes of every tensor of the file."""
    sizes = {}
    for weight in weights(config):
        leaf, wanted = at(params, weight.path), at(shapes(config), weight.path).shape
        if leaf.shape != wanted:
            raise ValueError(f"parameter {'/'.join(weight.path)} has shape {leaf.shape}; the config asks for {wanted}.")
        names = file_names(config, weight)
        entries = leaf.size if _rows(config, weight) is None else leaf.size // config.vocab_rows * config.vocab_size
        sizes |= dict.fromkeys(names, entries * leaf.dtype.itemsize // len(names))
    return sizes


def _rows(config: DecoderConfig, weight: Weight) -> int | None:
    """Of the vocabulary, how many rows are tokens; None where rows are none of it."""
    return config.vocab_size if weight.path in (("embedding",), ("head",)) else None


def _on_host(array: jax.Array) -> np.ndarray:
    if not array.is_fully_addressable:
        array = multihost_utils.process_allgather(array, tiled=True)
    return np.asarray(array)
