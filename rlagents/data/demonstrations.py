"""Demonstrations on disk: what an assistant says in a task, a row each, as TFDS datasets, without TensorFlow.

    write_demonstrations(folder, "rctp", {"train": rows, "test": others})
    read_demonstrations(folder, "rctp", "train")

``folder`` is a TFDS ``data_dir``: the dataset ``demonstrations/rctp``, in array_record files, can be read by anything
that reads TFDS. A row says nothing of what the world answered: that comes from playing it again.
"""

import contextlib
import dataclasses
import importlib
import io
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

DATASET, VERSION = "demonstrations", "1.0.0"

EXPERT, POLICY, SCRIPTED = "expert", "policy", "scripted"
SOURCES = (EXPERT, POLICY, SCRIPTED)
"""Who a demonstration is of: the ground truth, a policy's own rollout, or the ground truth spoiled by rote."""


@dataclass(frozen=True)
class DemonstrationRow:
    """One demonstration.

    Attributes:
      task_id: of the task it is made in.
      category: of the task.
      condition: what the task is shown with; -1 for none.
      cause: why it fails; "" where it does not.
      source: one of ``SOURCES``.
      texts: what the assistant says, in order.
      ends: whether the episode is over after the last text.

    Raises:
      ValueError: at construction: no texts, an unknown source, a condition below -1.
    """

    task_id: str
    category: str
    condition: int
    cause: str
    source: str
    texts: tuple[str, ...]
    ends: bool

    def __post_init__(self):
        if not self.texts:
            raise ValueError(f"the demonstration of task {self.task_id!r} says nothing; it needs one text or more.")
        if self.source not in SOURCES:
            raise ValueError(f"the source of a demonstration is one of {', '.join(SOURCES)}, found {self.source!r}.")
        if self.condition < -1:
            raise ValueError(f"the condition of a demonstration is 0 or more, or -1 for none, found {self.condition}.")


def write_demonstrations(
    folder: str | os.PathLike[str],
    name: str,
    splits: Mapping[str, Sequence[DemonstrationRow]],
    *,
    description: str = "What an assistant says in tasks, to be imitated.",
) -> Path:
    """Write the dataset ``demonstrations/NAME``, rows in the order given; it is there as a whole or not at all.

    The same rows are read back in the same order in every process; the bytes of the files may differ.

    Returns:
      The folder of the dataset.

    Raises:
      ValueError: an empty split, none at all, text that is no valid Unicode, or a dataset of that name in the folder.
      ModuleNotFoundError: tensorflow-datasets is not installed.
    """
    if not splits or not all(splits.values()):
        sizes = {split: len(rows) for split, rows in splits.items()}
        raise ValueError(f"the dataset {name!r} has splits {sizes}; give at least one, and none that is empty.")
    written = check_unwritten(folder, name)
    encoded = {split: [_encodable(row) for row in rows] for split, rows in splits.items()}
    builder = _builder(name, encoded, description, str(folder))
    # It downloads nothing, but makes a folder for it; and what it says of its progress is of no use.
    with tempfile.TemporaryDirectory() as nothing, contextlib.redirect_stdout(io.StringIO()):
        builder.download_and_prepare(download_dir=nothing)
    return written


def check_unwritten(folder: str | os.PathLike[str], name: str) -> Path:
    """Where the dataset ``demonstrations/NAME`` is to be. Raises ValueError if something is there already."""
    written = Path(folder) / DATASET / name / VERSION
    if written.exists():
        raise ValueError(f"{written} is there already; give another folder, or remove it first.")
    return written


def read_demonstrations(folder: str | os.PathLike[str], name: str, split: str) -> tuple[DemonstrationRow, ...]:
    """Read a split of the dataset ``demonstrations/NAME``, in the order in which it was written; every row is checked.

    Raises:
      ValueError: no such dataset or split, or one that is damaged.
      ModuleNotFoundError: tensorflow-datasets or grain is not installed.
    """
    written = Path(folder) / DATASET / name / VERSION
    if not written.is_dir():
        raise ValueError(f"{folder} holds no dataset {DATASET}/{name}: there is no folder {written}.")
    tfds, grain = _library("tensorflow_datasets"), _library("grain")
    with _damage(written):
        builder = tfds.builder_from_directory(str(written))
        known = list(builder.info.splits)
    if split not in known:
        raise ValueError(f"{written} has the splits {', '.join(known)}, and none is called {split!r}.")
    with _damage(written):
        rows = grain.MapDataset.source(builder.as_data_source(split=split)).map(_row)
        return tuple(rows[index] for index in range(len(rows)))


def _encodable(row: DemonstrationRow) -> dict[str, Any]:
    plain = dataclasses.asdict(row)
    try:
        for text in (row.task_id, row.category, row.cause, *row.texts):
            text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"a demonstration of task {row.task_id!a} has text that is no valid Unicode: {error}"
        ) from None
    return plain | {"texts": list(row.texts)}


def _row(stored: Mapping[str, Any]) -> DemonstrationRow:
    texts = {name: stored[name].decode() for name in ("task_id", "category", "cause", "source")}
    said = tuple(text.decode() for text in stored["texts"])
    return DemonstrationRow(**texts, condition=int(stored["condition"]), texts=said, ends=bool(stored["ends"]))


def _builder(name: str, splits: Mapping[str, Sequence[Mapping[str, Any]]], description: str, folder: str) -> Any:
    """A TFDS builder of these rows. Its class is made when it is needed, as its base class is."""
    tfds = _library("tensorflow_datasets")
    tfds.disable_progress_bar()

    # Unregistered: nobody is to find by its name what holds these rows alone.
    with tfds.core.registered.skip_registration():

        class Demonstrations(tfds.core.GeneratorBasedBuilder):
            VERSION = tfds.core.Version(VERSION)
            BUILDER_CONFIGS = (tfds.core.BuilderConfig(name=name, description=description),)

            def __init__(self, splits: Mapping[str, Sequence[Mapping[str, Any]]], **options: Any):
                self._splits = splits
                super().__init__(**options)

            def _info(self) -> Any:
                text = tfds.features.Text
                columns = {
                    "task_id": text(),
                    "category": text(),
                    "condition": np.int64,
                    "cause": text(),
                    "source": text(),
                    "texts": tfds.features.Sequence(text()),
                    "ends": np.bool_,
                }
                features = tfds.features.FeaturesDict(columns)
                return tfds.core.DatasetInfo(
                    builder=self, description=description, features=features, disable_shuffling=True
                )

            def _split_generators(self, dl_manager: Any) -> Any:
                del dl_manager
                return {split: self._generate_examples(rows) for split, rows in self._splits.items()}

            def _generate_examples(self, rows: Sequence[Mapping[str, Any]]) -> Any:
                return enumerate(rows)

    return Demonstrations(splits, data_dir=folder, config=name, file_format="array_record")


@contextlib.contextmanager
def _damage(folder: Path) -> Iterator[None]:
    """Whatever reading raises is damage: no more is asked of it than what was written."""
    try:
        yield
    except ModuleNotFoundError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise ValueError(
            f"the dataset in {folder} is damaged ({type(error).__name__}: {said}); remove it and write it again."
        ) from error


def _library(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Datasets of demonstrations need the package {name.replace('_', '-')}, which is not installed; TensorFlow "
            "is not needed. Install the extra:\n    pip install 'rlagents[data]'"
        ) from error
