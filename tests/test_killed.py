"""SIGKILL at any moment changes nothing: what a run leaves is, bit for bit, what it leaves uninterrupted."""

import contextlib
import errno
import itertools
import os
import signal

import pytest

from rlagents.interruption import EXIT_CODE
from rlagents.metrics import read_metrics
from tests import tiny_run
from tests.effort import draws
from tests.killing import (
    Starter,
    asked,
    assert_same_run,
    command,
    final_state,
    lines_more,
    no_more_than,
    position,
    random_moments,
    there,
    untimed,
)

KILLS = 2 if draws(1) == 1 else 20
"""Of each variant."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Compiled programs: only the first run compiles."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def starter(tmp_path_factory):
    with contextlib.closing(Starter(tmp_path_factory.mktemp("starter"))) as made:
        yield made


@pytest.fixture(scope="module")
def whole(tmp_path_factory, cache, starter):
    """``variant -> (folder of an uninterrupted run, seconds that a step of it takes)``, each made once."""
    made = {}

    def of(variant):
        if variant not in made:
            workdir = tmp_path_factory.mktemp(variant.replace(" ", "-")) / "run"
            ended = starter.run(command(variant, workdir, cache))
            assert ended.code == 0, ended.output
            made[variant] = workdir, min(row["seconds"] for row in read_metrics(workdir / "metrics.jsonl"))
        return made[variant]

    return of


@pytest.mark.parametrize("variant", list(tiny_run.VARIANTS))
def test_a_run_killed_anywhere_and_started_again_is_the_run_never_interrupted(variant, whole, starter, cache, tmp_path):
    """As many runs as it takes to kill so often: one that is killed goes on, and comes nearer to its end."""
    uninterrupted, step_seconds = whole(variant)
    moments, kills = random_moments(variant, step_seconds), 0
    for number in range(KILLS):
        workdir = tmp_path / str(number)
        words = command(variant, workdir, cache)
        # The first process of a run has steps to go: it is killed for certain, and others go on from it.
        whenever = itertools.chain([lines_more("metrics.jsonl", 1)], moments)
        ended = starter.to_the_end(words, workdir, itertools.islice(whenever, KILLS - kills))
        assert ended[-1].code == 0, ended[-1].output
        assert_same_run(workdir, uninterrupted)
        kills += len(ended) - 1
        if kills == KILLS:
            break
    assert kills == KILLS


def test_a_run_killed_at_every_epoch_boundary_is_the_run_never_interrupted(whole, starter, cache, tmp_path):
    uninterrupted, _ = whole("one epoch")
    epochs = range(tiny_run.TASKS // 4, tiny_run.STEPS, tiny_run.TASKS // 4)
    moments = (there(f"checkpoints/{step}") for step in epochs)
    ended = starter.to_the_end(command("one epoch", tmp_path / "run", cache), tmp_path / "run", moments)
    assert ended[-1].code == 0, ended[-1].output
    for step, process in zip(epochs, ended[1:], strict=True):
        assert f"going on after step {step}\n" in process.output
        assert position(uninterrupted, tiny_run.STEPS)["prompts"] == 4 * tiny_run.STEPS
    assert_same_run(tmp_path / "run", uninterrupted)


def test_a_run_asked_to_stop_saves_first_and_goes_on_when_started_again(whole, starter, cache, tmp_path):
    """In the warm-up, in the reinforced phase; by SIGTERM and by SIGINT."""
    uninterrupted, _ = whole("one epoch")
    workdir, words = tmp_path / "run", command("one epoch", tmp_path / "run", cache)
    for number, moment, said in (
        (signal.SIGTERM, there("warm_up.jsonl"), "of 3 of the warm-up, and saved; start again"),
        (signal.SIGINT, lines_more("metrics.jsonl", 1), "of 5, and saved; start again"),
    ):
        ended = starter.run_until(words, workdir, moment, asked(number))
        assert ended.code == EXIT_CODE, ended.output
        assert said in ended.output
        assert "Traceback" not in ended.output
    ended = starter.run(words)
    assert ended.code == 0, ended.output
    assert_same_run(workdir, uninterrupted)


def test_a_run_on_a_full_disk_says_so_and_with_room_is_the_run_never_interrupted(whole, starter, cache, tmp_path):
    uninterrupted, _ = whole("one epoch")
    workdir = tmp_path / "run"
    words = command("one epoch", workdir, cache)
    ended = starter.run_until(words, workdir, lines_more("metrics.jsonl", 1), no_more_than(2500))
    assert ended.code == 2, ended.output
    # Whatever threads of libraries print beside it.
    (said,) = [line for line in ended.output.splitlines() if "rlagents.train: " in line]
    assert said.startswith("rlagents.train: "), ended.output
    assert str(workdir) in said, said
    assert "cannot be written" in said, said
    assert os.strerror(errno.EFBIG) in said, said
    ended = starter.run(words)
    assert ended.code == 0, ended.output
    assert_same_run(workdir, uninterrupted)


def test_a_finished_run_says_so_and_nothing_is_touched(whole, starter, cache):
    workdir, _ = whole("one epoch")
    before = {path: path.stat().st_mtime_ns for path in sorted(workdir.rglob("*"))}
    ended = starter.run(command("one epoch", workdir, cache))
    assert ended.code == 0
    assert f"{workdir} is finished: all its steps are done" in ended.output
    assert {path: path.stat().st_mtime_ns for path in sorted(workdir.rglob("*"))} == before


def test_what_a_resumed_run_leaves_depends_on_what_the_checkpoint_holds(whole):
    """The comparison sees a difference: of variants, and of a method that remembers."""
    one, other = whole("one epoch")[0], whole("adaptive KL")[0]
    assert untimed(one / "metrics.jsonl") != untimed(other / "metrics.jsonl")
    assert any("method_state" in name for name in final_state(other))
    assert not any("method_state" in name for name in final_state(one))
