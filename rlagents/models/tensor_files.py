"""Safetensors checkpoints, whole or in shards: reading blocks, writing shards."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from rlagents.models.weights import Range

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class TensorFiles:
    """The tensors of a checkpoint folder; files are opened when first read.

    Raises FileNotFoundError when the folder has neither ``model.safetensors`` nor an index, or lacks a file that the
    index names; ValueError for a truncated or otherwise unreadable file.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._open: dict[str, Any] = {}
        if (folder / INDEX).exists():
            self._file_of = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
            missing = sorted(name for name in set(self._file_of.values()) if not (folder / name).exists())
            if missing:
                raise FileNotFoundError(f"{folder / INDEX} names files that are not there: {', '.join(missing)}.")
        elif (folder / WHOLE).exists():
            self._file_of = dict.fromkeys(self._tensors(WHOLE).keys(), WHOLE)
        else:
            found = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else "no such folder"
            raise FileNotFoundError(f"{folder} has neither {WHOLE} nor {INDEX}; found: {found}.")

    @property
    def names(self) -> set[str]:
        """Names of all tensors."""
        return set(self._file_of)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor; ValueError when there is none of that name."""
        return tuple(self._slice(name).get_shape())

    def read(self, name: str, ranges: Sequence[Range]) -> np.ndarray:
        """A block of a tensor; only its bytes are read."""
        return self._slice(name)[tuple(slice(*bounds) for bounds in ranges)]

    def _slice(self, name: str):
        if name not in self._file_of:
            raise ValueError(f"{self.folder} has no tensor {name!r}; it has {len(self._file_of)} others.")
        file = self._file_of[name]
        try:
            return self._tensors(file).get_slice(name)
        except SafetensorError as error:
            raise ValueError(f"{self.folder / file} has no tensor {name!r}, against {INDEX}: {error}.") from error

    def _tensors(self, file: str):
        if file not in self._open:
            try:
                self._open[file] = safe_open(self.folder / file, "numpy")
            except SafetensorError as error:
                size = (self.folder / file).stat().st_size
                raise ValueError(
                    f"{self.folder / file} ({size} bytes) is not a whole safetensors file: {error}. Fetch it again."
                ) from error
        return self._open[file]


def write_tensors(
    folder: Path, sizes: dict[str, int], tensor: Callable[[str], np.ndarray | None], max_shard_bytes: int
) -> None:
    """Write tensors in shards of at most ``max_shard_bytes`` (or one tensor), holding one shard at a time in memory.

    ``sizes`` are bytes by name. ``tensor(name)`` is called in their order; where it answers None (on a process that
    does not write) nothing is written.
    """
    shards: list[list[str]] = [[]]
    room = max_shard_bytes
    for name, size in sizes.items():
        if shards[-1] and size > room:
            shards.append([])
            room = max_shard_bytes
        shards[-1].append(name)
        room -= size
    count = len(shards)
    files = [WHOLE] if count == 1 else [f"model-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]
    writing = True
    for file, names in zip(files, shards):
        tensors = {name: array for name in names if (array := tensor(name)) is not None}
        writing = len(tensors) == len(names)
        if writing:
            save_file(tensors, folder / file, metadata={"format": "pt"})
    if writing and len(shards) > 1:
        file_of = {name: file for file, names in zip(files, shards) for name in names}
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": file_of}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
