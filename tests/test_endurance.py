"""Over many steps a run holds no more than over few, and its logs rotate."""

import pytest

from rlagents.metrics import files_of, read_metrics
from tests import effort, endurance


@pytest.fixture(scope="module")
def endured(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("endured") / "run"
    steps = 300 if effort.draws(1) == 1 else 2000
    return workdir, steps, endurance.watched_run(workdir, steps)


def test_nothing_grows(endured):
    _, _, found = endured
    grew = endurance.growth(found)
    assert grew["megabytes"] < endurance.GROWTH_MEGABYTES
    assert grew["descriptors"] <= 0
    assert grew["threads"] <= 0
    assert grew["children"] <= 0
    assert {one.children for one in found} == {found[0].children}


def test_logs_rotate_and_lose_nothing(endured):
    workdir, steps, _ = endured
    assert [row["step"] for row in read_metrics(workdir / "metrics.jsonl")] == list(range(steps))
    for name in ("metrics.jsonl", "trajectories.jsonl"):
        files = files_of(workdir / name)
        assert len(files) > steps / 100
        assert all(file.stat().st_size <= endurance.LINES_A_FILE * 2**20 for file in files)


def test_what_grows_is_seen():
    def uses(name, amount):
        flat = {"megabytes": 100.0, "descriptors": 20, "threads": 5, "children": 2}
        return [endurance.Use(step, **(flat | {name: flat[name] + amount(step)})) for step in range(20)]

    for name in ("megabytes", "descriptors", "threads", "children"):
        assert endurance.growth(uses(name, lambda step: step))[name] > 0
        assert endurance.growth(uses(name, lambda step: 0))[name] == 0
        assert endurance.growth(uses(name, lambda step: 5 * (step % 2)))[name] == 0
    assert endurance.growth(uses("descriptors", lambda step: step == 17))["descriptors"] == 0
