"""Whatever becomes of a file of a checkpoint, the checkpoint is refused and the one before is gone back to."""

import collections
import json
import shutil

import pytest

from rlagents.checkpoints import CheckpointError, Checkpoints, folders
from rlagents.checkpoints.errors import DamagedError
from rlagents.checkpoints.manifest import MANIFEST, check_manifest, write_manifest
from rlagents.first_weights import resumed
from rlagents.metrics.lines import JsonLines
from rlagents.versions import code_versions
from tests.checkpoint_faults import CONFIG, DAMAGES, Stored, files_of, record, table, two_checkpoints
from tests.test_checkpoints import bits, new_state, step_and_shardings, target


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Checkpoints of steps 1 and 2, the second with a pending rollout."""
    return two_checkpoints(tmp_path_factory.mktemp("two") / "checkpoints")


@pytest.fixture
def copied(two, tmp_path):
    return shutil.copytree(two, tmp_path / "checkpoints")


def test_a_checkpoint_is_arrays_a_record_and_a_manifest_of_all_of_it(two):
    names = files_of(two / "2")
    assert {MANIFEST, "record.json", "pending.json"} < set(names)
    assert any(name.startswith("state/") for name in names)
    manifest = json.loads((two / "2" / MANIFEST).read_text())
    assert list(manifest["files"]) == sorted(set(names) - {MANIFEST})
    check_manifest(two / "2")


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_any_file_is_seen_and_the_one_before_is_gone_back_to(damage, two, tmp_path, capsys):
    _, shardings = step_and_shardings()
    names = files_of(two / "2")
    assert len(names) > 8
    for number, name in enumerate(names):
        directory = shutil.copytree(two, tmp_path / f"{number}" / "checkpoints")
        if not DAMAGES[damage](directory / "2" / name):
            continue  # an empty file cannot be emptied
        with Checkpoints(directory) as checkpoints:
            with pytest.raises(CheckpointError, match=r"checkpoint of step 2 in .* cannot be read"):
                checkpoints.restore(target(shardings), 2)
            step, stored = resumed(checkpoints, Stored(CONFIG))
            assert (step, stored.position) == (1, {"prompts": 1}), name
        said = capsys.readouterr().err
        assert "WARNING: the checkpoint of step 2" in said
        assert name in said or name == MANIFEST  # ... which then is wrong about others
        assert "renamed to damaged-2, and what came after step 1 is made again" in said
        # Kept, under another name, for a person to look at.
        assert sorted(path.name for path in directory.iterdir()) == ["1", "damaged-2"]
        assert set(files_of(directory / "damaged-2")) == set(names) - ({name} if damage == "removed" else set())


def test_every_single_bit_of_a_manifest_counts(two, tmp_path):
    folder = shutil.copytree(two / "1", tmp_path / "1")
    whole = (folder / MANIFEST).read_bytes()
    for place in range(0, 8 * len(whole), 1 if len(whole) < 400 else 7):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        (folder / MANIFEST).write_bytes(flipped)
        with pytest.raises(DamagedError):
            check_manifest(folder, 1)
    (folder / MANIFEST).write_bytes(whole)
    check_manifest(folder, 1)


def test_a_file_too_many_is_damage_too_and_so_is_a_link(two, tmp_path):
    folder = shutil.copytree(two / "1", tmp_path / "1")
    (folder / "state" / "more").write_bytes(b"")
    with pytest.raises(DamagedError, match="state/more is not one of its files"):
        check_manifest(folder)
    (folder / "state" / "more").unlink()
    (folder / "record.json").rename(tmp_path / "record.json")
    (folder / "record.json").symlink_to(tmp_path / "record.json")
    with pytest.raises(DamagedError, match=r"record\.json has None bytes"):
        check_manifest(folder)


def test_the_manifest_is_the_last_file_written(tmp_path, monkeypatch):
    _, shardings = step_and_shardings()
    seen = []

    def told(folder, step):
        write_manifest(folder, step)
        seen.append((folder.name, [name for name in files_of(folder)]))

    monkeypatch.setattr("rlagents.checkpoints.store.write_manifest", told)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(3, new_state(shardings), record(3))
    assert seen == [("writing-3", files_of(tmp_path / "3"))]


def test_the_name_of_a_checkpoint_goes_to_the_disk_after_the_names_in_it(tmp_path, monkeypatch):
    folder, synced = folders.begin(tmp_path, 3), []
    (folder / "state").mkdir()
    monkeypatch.setattr(folders, "sync_folder", synced.append)
    folders.complete(folder)
    assert synced == [folder / "state", folder, tmp_path]


def test_only_a_folder_with_the_name_of_a_step_is_a_checkpoint(tmp_path):
    for name in ("12", "3", "007", "4.orbax", "-1", "writing-5", "deleting-6", "damaged-7"):
        (tmp_path / name).mkdir()
    (tmp_path / "8").touch()
    assert folders.steps_in(tmp_path) == [3, 12]


def test_none_that_is_whole_is_an_error_and_never_a_fresh_run(copied):
    for step in (1, 2):
        (copied / str(step) / "record.json").unlink()
    for _ in range(2):
        with Checkpoints(copied) as checkpoints, pytest.raises(CheckpointError, match="none that is whole") as caught:
            resumed(checkpoints, Stored(CONFIG))
        assert "step 2: record.json is missing; step 1: record.json is missing" in str(caught.value)
        assert "never started over by itself" in str(caught.value)
        assert sorted(path.name for path in copied.iterdir()) == ["1", "2"]


def test_one_set_aside_earlier_still_says_that_there_was_a_run(copied):
    with Checkpoints(copied) as checkpoints:
        folders.delete(copied, 1)
        assert checkpoints.set_aside(2).name == "damaged-2"
    with Checkpoints(copied) as checkpoints, pytest.raises(CheckpointError, match=r"none that is whole \(damaged-2\)"):
        resumed(checkpoints, Stored(CONFIG))


def test_a_second_damaged_one_of_the_same_step_gets_a_name_of_its_own(copied):
    for name in ("damaged-2", "damaged-2-2", "damaged-2-3"):
        with Checkpoints(copied) as checkpoints:
            assert checkpoints.set_aside(2).name == name
        shutil.copytree(copied / "1", copied / "2")


def test_what_was_being_written_is_no_checkpoint_and_is_removed(two, copied):
    """At every stage of it: no file yet, some, all but the manifest, all but the name."""
    _, shardings = step_and_shardings()
    names = files_of(two / "2")
    for count in (0, 1, len(names) - 1, len(names)):
        folder = copied / "writing-3"
        shutil.copytree(two / "2", folder)
        for name in names[count:]:
            (folder / name).unlink()
        with Checkpoints(copied) as checkpoints:
            assert checkpoints.newest() == (2, {})
            assert resumed(checkpoints, Stored(CONFIG)).step == 2
            assert not folder.exists()
            state, stored = checkpoints.restore(target(shardings))
        assert bits(state) == bits(new_state(shardings, 1))
        assert stored.pending == {"groups": [[1.5]]}


@pytest.mark.parametrize("gone", ["the checkpoints", "their folder"])
@pytest.mark.parametrize("noted", ["when the first was written", "when it was gone on from"])
def test_checkpoints_that_are_gone_are_no_fresh_start(noted, gone, copied):
    mark = copied.with_name("checkpoints.begun")
    if noted == "when it was gone on from":  # ... since the run was taken away between both
        assert not mark.exists()
        with Checkpoints(copied) as checkpoints:
            assert resumed(checkpoints, Stored(CONFIG)).step == 2
    else:
        shutil.copy(two_checkpoints(copied.with_name("other") / "checkpoints").with_name(mark.name), mark)
    shutil.rmtree(copied)
    if gone == "the checkpoints":
        copied.mkdir()
    with Checkpoints(copied) as checkpoints, pytest.raises(CheckpointError, match="held checkpoints, and holds none"):
        resumed(checkpoints, Stored(CONFIG))


def test_folders_that_are_called_by_each_other_s_steps_are_damaged(copied):
    for name, other in (("1", "between"), ("2", "1"), ("between", "2")):
        (copied / name).rename(copied / other)
    with Checkpoints(copied) as checkpoints, pytest.raises(CheckpointError, match="none that is whole") as caught:
        resumed(checkpoints, Stored(CONFIG))
    assert "step 2: it is the checkpoint of step 1, under another's name" in str(caught.value)


def test_steps_before_the_checkpoint_that_have_no_line_are_told(copied, capsys):
    log = copied.with_name("metrics.jsonl")
    with Checkpoints(copied) as checkpoints:
        with JsonLines(log) as lines:
            for step in range(3):
                lines.write({"step": step})
        assert resumed(checkpoints, Stored(CONFIG), log).step == 2
        assert capsys.readouterr().err == ""
        log.write_text('{"step": 0}\n{"step": garbled}\n{"step": 2}\n')
        assert resumed(checkpoints, Stored(CONFIG), log).step == 2
        assert "has no line that can be read of 1 of the 2 steps before" in (said := capsys.readouterr().err)
        assert "the first of them step 1;" in said
        log.unlink()
        assert resumed(checkpoints, Stored(CONFIG), log).step == 2
        assert "of 2 of the 2 steps" in capsys.readouterr().err


def test_none_yet_is_a_fresh_start(tmp_path):
    (tmp_path / "checkpoints" / "writing-1").mkdir(parents=True)
    for directory in ("nowhere", "checkpoints"):
        with Checkpoints(tmp_path / directory) as checkpoints:
            assert resumed(checkpoints, Stored(CONFIG)) is None
    assert not (tmp_path / "nowhere").exists()


def test_that_of_another_config_is_refused_with_the_keys_that_differ(copied):
    with Checkpoints(copied) as checkpoints, pytest.raises(CheckpointError) as caught:
        resumed(checkpoints, Stored({"seed": 6, "rl": {"steps": 3}, "new": None}))
    assert "checkpoint of step 2" in str(caught.value)
    assert "is of another config (new is None, was absent; seed is 6, was 5)" in str(caught.value)


def test_other_versions_are_told_of_and_no_obstacle(tmp_path, capsys):
    _, shardings = step_and_shardings()
    run = {"elapsed_seconds": 1.0, "versions": code_versions() | {"jax": "0.0.1"}}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, new_state(shardings), record(1, run=run))
        assert resumed(checkpoints, Stored(CONFIG)).step == 1
    assert f"jax is {code_versions()['jax']}, was 0.0.1" in capsys.readouterr().out


def test_the_table_of_faults_is_what_happens(tmp_path):
    rows = table(tmp_path)
    happens = collections.Counter(what for _, _, what in rows)
    back = "refused and renamed; the run goes back to the one before, and says so"
    refused = "refused; the run ends with exit code 2"
    assert happens.keys() == {back, refused, "ignored and removed; the run goes on from the newest"}
    assert happens[back] >= 4 * 5
    assert {fault for fault, _, what in rows if what == refused} == {
        "every checkpoint damaged",
        "folders that are called by each other's steps",
        "the only one was renamed before",
        "all of them removed",
        "of another config",
        "of another decoder",
    }
