"""Rows of demonstrations go to disk and come back, in every process alike, or with a clear error."""

import builtins
import dataclasses
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlagents.data import demonstrations
from rlagents.data.demonstrations import SOURCES, DemonstrationRow, read_demonstrations, write_demonstrations
from tests.effort import draws

ROOT = Path(__file__).parents[1]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ROWS = st.builds(
    DemonstrationRow,
    task_id=TEXT,
    category=TEXT,
    condition=st.integers(-1, 5),
    cause=TEXT,
    source=st.sampled_from(SOURCES),
    texts=st.lists(TEXT, min_size=1, max_size=4).map(tuple),
    ends=st.booleans(),
)
ROW = DemonstrationRow("t", "base", 1, "", "expert", ("[ls()]", "Done."), True)


def numbered(count):
    return [dataclasses.replace(ROW, task_id=f"t{index}", condition=index % 2) for index in range(count)]


@settings(max_examples=draws(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ROWS, min_size=1, max_size=5), st.lists(ROWS, min_size=1, max_size=5))
def test_rows_come_back_as_they_were_in_their_order(tmp_path, train, test):
    shutil.rmtree(tmp_path)
    written = write_demonstrations(tmp_path, "any", {"train": train, "test": test})
    assert written.is_dir()
    assert list(read_demonstrations(tmp_path, "any", "train")) == train
    assert list(read_demonstrations(tmp_path, "any", "test")) == test


def test_another_process_writes_and_reads_the_same_without_tensorflow(tmp_path):
    rows = numbered(300)
    write_demonstrations(tmp_path / "here", "set", {"train": rows})
    program = (
        "import sys\n"
        "from rlagents.data.demonstrations import read_demonstrations, write_demonstrations\n"
        "rows = read_demonstrations(sys.argv[1], 'set', 'train')\n"
        "write_demonstrations(sys.argv[2], 'set', {'train': rows})\n"
        "assert 'grain' in sys.modules and 'tensorflow_datasets' in sys.modules\n"
        "loaded = {'tensorflow', 'torch'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "here", tmp_path / "there"],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "3", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert list(read_demonstrations(tmp_path / "there", "set", "train")) == rows


def test_it_is_a_dataset_as_tfds_has_them(tmp_path):
    import grain
    import tensorflow_datasets as tfds

    write_demonstrations(tmp_path, "set", {"train": numbered(10)})
    builder = tfds.builder("demonstrations/set", data_dir=tmp_path)
    assert str(builder.info.file_format.value) == "array_record"
    assert sorted(builder.info.features) == sorted(field.name for field in dataclasses.fields(DemonstrationRow))
    stored = grain.MapDataset.source(builder.as_data_source(split="train")).seed(0).shuffle()
    assert sorted(row["task_id"].decode() for row in stored) == sorted(row.task_id for row in numbered(10))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    write_demonstrations(folder, "set", {"train": numbered(50), "test": numbered(5)})
    return folder


def files(folder):
    return sorted(path for path in (folder / "demonstrations").glob("set/*/*"))


def test_the_damage_below_is_to_every_file(whole):
    assert [path.name for path in whole.iterdir()] == ["demonstrations"]
    assert [path.name for path in files(whole)] == [
        "dataset_info.json",
        "demonstrations-test.array_record-00000-of-00001",
        "demonstrations-train.array_record-00000-of-00001",
        "features.json",
    ]


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def swapped(path):
    other = path.with_name(path.name.replace("train", "test"))
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize("number", [0, 2, 3])
@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda path: path.write_bytes(b""), cut], ids=["removed", "emptied", "cut"]
)
def test_damage_is_told_with_the_folder(whole, tmp_path, number, damage):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    damage(files(tmp_path)[number])
    with pytest.raises(ValueError, match=f"the dataset in {tmp_path}.* is damaged .*write it again"):
        read_demonstrations(tmp_path, "set", "train")


def test_rows_of_another_split_in_a_file_are_noticed(whole, tmp_path):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    swapped(files(tmp_path)[2])
    with pytest.raises(ValueError, match="is damaged"):
        read_demonstrations(tmp_path, "set", "train")


def test_no_changed_byte_changes_a_row(whole, tmp_path):
    """Records carry hashes: what is read is what was written, or an error."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    path = files(tmp_path)[2]
    data = path.read_bytes()
    filled = [place for place, byte in enumerate(data) if byte]
    said = []
    for place in filled[:: max(1, len(filled) // 60)]:
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        try:
            assert list(read_demonstrations(tmp_path, "set", "train")) == numbered(50), place
        except ValueError as error:
            said.append(str(error))
    assert len(said) > 20
    assert all("is damaged" in one for one in said)


def test_what_is_not_there_is_named(whole, tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path} holds no dataset demonstrations/set"):
        read_demonstrations(tmp_path, "set", "train")
    with pytest.raises(ValueError, match="has the splits train, test, and none is called 'valid'"):
        read_demonstrations(whole, "set", "valid")


def test_what_cannot_be_written_is_refused(whole, tmp_path):
    with pytest.raises(ValueError, match="is there already"):
        write_demonstrations(whole, "set", {"train": [ROW]})
    with pytest.raises(ValueError, match=r"splits {'train': 1, 'test': 0}"):
        write_demonstrations(tmp_path, "set", {"train": [ROW], "test": []})
    with pytest.raises(ValueError, match="no valid Unicode"):
        write_demonstrations(tmp_path, "set", {"train": [dataclasses.replace(ROW, texts=("\ud800",))]})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "says"),
    [({"texts": ()}, "says nothing"), ({"source": "elsewhere"}, "one of expert, policy"), ({"condition": -2}, "-2")],
)
def test_rows_that_make_no_sense_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        dataclasses.replace(ROW, **change)


@pytest.mark.parametrize("missing", ["tensorflow_datasets", "grain"])
def test_a_library_that_is_missing_is_named_with_the_extra(whole, monkeypatch, missing):
    present = importlib.import_module

    def absent(name, *rest):
        if name == missing:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return present(name, *rest)

    monkeypatch.setattr(demonstrations.importlib, "import_module", absent)
    with pytest.raises(
        ModuleNotFoundError, match=rf"need the package {missing.replace('_', '-')}.*\n.*rlagents\[data\]"
    ):
        read_demonstrations(whole, "set", "train")
    assert builtins.__import__(missing)
