"""A disk that is full at any write: what was whole stays whole, the error says what to do, and with room it goes on."""

import json
import os
import resource
import subprocess
import sys

import pytest

from rlagents.checkpoints import CheckpointError, Checkpoints, RunRecord
from tests.checkpoint_faults import files_of
from tests.killing import ROOT
from tests.test_checkpoints import bits, new_state, step_and_shardings, target

PENDING = {"groups": [[0.5]] * 500}


@pytest.fixture
def limited():
    """``limited(bytes)``: no file of this process may become larger; undone in the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda num_bytes: resource.setrlimit(resource.RLIMIT_FSIZE, (soft if num_bytes is None else num_bytes, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of Orbax's threads
def test_a_checkpoint_whose_files_cannot_grow_is_none_and_the_one_before_is_whole(tmp_path, limited):
    """The limit is set below each of its files in turn, so that each is the one that fails."""
    _, shardings = step_and_shardings()
    first, second = new_state(shardings), new_state(shardings, 1)
    with Checkpoints(tmp_path / "sample") as checkpoints:
        checkpoints.save(2, second, RunRecord({"prompts": 2}, pending=PENDING))
    sizes = {(tmp_path / "sample" / "2" / name).stat().st_size for name in files_of(tmp_path / "sample" / "2")}
    limits = sorted({max(size - 1, 0) for size in sizes})
    assert len(limits) > 5
    for limit in limits:
        directory = tmp_path / str(limit)
        with Checkpoints(directory) as checkpoints:
            checkpoints.save(1, first, RunRecord({"prompts": 1}))
        limited(limit)
        try:
            with (
                pytest.raises(CheckpointError, match=r"checkpoint of step 2 in .* cannot be written") as caught,
                Checkpoints(directory) as checkpoints,
            ):
                checkpoints.save(2, second, RunRecord({"prompts": 2}, pending=PENDING))
        finally:
            limited(None)
        assert "those of steps [1] are whole: make room" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert [path.name for path in directory.iterdir()] == ["1"], "the room of the failed one is given back"
        with Checkpoints(directory) as checkpoints:
            assert checkpoints.newest() == (1, {})
            assert bits(checkpoints.restore(target(shardings))[0]) == bits(first)
            checkpoints.save(2, second, RunRecord({"prompts": 2}, pending=PENDING))
            state, record = checkpoints.restore(target(shardings))
        assert bits(state) == bits(second)
        assert record.pending == PENDING


def test_a_disk_that_is_full_at_every_page_of_a_checkpoint(tmp_path):
    """On a real one, of memory, where this machine lets a process have its own."""
    mounted = f"mount -t tmpfs -o size=4m tmpfs {tmp_path} && exec {sys.executable} -m tests.small_disk {tmp_path}/run"
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounted]
    try:
        allowed = subprocess.run([*words[:4], "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip("this machine lets no process mount a file system of its own")
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(words, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    *failed, fitted = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(failed) > 3
    for found in failed:
        assert "checkpoint of step 2" in found["said"]
        assert "make room" in found["said"]
        assert found["names"] == ["1"], found
        assert (found["newest"], found["damaged"], found["right"], found["with room"]) == (1, {}, True, 2)
    assert (fitted["said"], fitted["newest"], fitted["right"]) == (None, 2, True)
