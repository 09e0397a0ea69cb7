"""A run continued from a checkpoint is the run that was never interrupted; a wrong checkpoint is refused by name."""

import concurrent.futures
import dataclasses
import functools
import os
import shutil
import sys
import threading
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlagents.checkpoints import CheckpointError, Checkpoints, RunRecord, folders
from rlagents.checkpoints.arrays import ArrayWriter
from rlagents.checkpoints.errors import said
from rlagents.data.streams import shuffled
from rlagents.learner import (
    abstract_state,
    create_state,
    from_optax,
    make_optimizer,
    make_supervised_step,
    state_shardings,
    whole_groups,
)
from rlagents.sharding import make_mesh
from tests import toy_policy

ADAMW = make_optimizer(optax.cosine_decay_schedule(0.1, 10))
METHOD_STATE = {"coefficient": np.float32(0.2)}


@functools.cache
def step_and_shardings(fsdp=1, tensor=1):
    mesh = make_mesh(fsdp=fsdp, tensor=tensor, devices=jax.devices()[: fsdp * tensor])
    shardings = state_shardings(toy_policy.init_params(), ADAMW, METHOD_STATE, toy_policy.AXES, mesh)
    return make_supervised_step(whole_groups(toy_policy.apply), ADAMW, shardings, prompts_per_micro_batch=4), shardings


def new_state(shardings, seed=0):
    return create_state(toy_policy.init_params(seed), ADAMW, METHOD_STATE, jax.random.key(7), shardings)


def target(shardings, optimizer=ADAMW, params=None):
    return abstract_state(params or toy_policy.init_params(), optimizer, METHOD_STATE, shardings)


def bits(tree):
    key = tree.key
    tree = dataclasses.replace(tree, key=jax.random.key_data(key))
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def train(state, stream, updates):
    step, _ = step_and_shardings()
    for _ in range(updates):
        ((_, seed),) = stream.take(1)
        # The data also depends on the run's key: one that restarted would show.
        noise = int(jax.random.randint(jax.random.fold_in(state.key, state.step), (), 0, 1000))
        batch = toy_policy.random_batch(seed + noise)
        state, _ = step(state, batch.sequences, batch.masks)
    return state


def test_resumed_equals_uninterrupted_bit_for_bit(tmp_path):
    """At every point, epoch boundaries included; parameters, moments, schedule, keys and data position."""
    _, shardings = step_and_shardings()
    uninterrupted = train(new_state(shardings), shuffled(range(3), seed=5), 7)
    for stop in (1, 3, 4, 6):
        stream = shuffled(range(3), seed=5)
        with Checkpoints(tmp_path / str(stop)) as checkpoints:
            state = train(new_state(shardings), stream, stop)
            pending = {"groups": [[{"log_probs": [-0.1]}]]} if stop > 1 else None
            record = RunRecord({"prompts": stream.position}, {"seed": 5}, {"name": "toy"}, pending)
            checkpoints.save(stop, state, record)
        with Checkpoints(tmp_path / str(stop)) as checkpoints:
            assert checkpoints.latest_step() == stop
            state, record = checkpoints.restore(target(shardings))
        assert record == RunRecord({"prompts": stop}, {"seed": 5}, {"name": "toy"}, pending)
        stream = shuffled(range(3), seed=5, position=record.position["prompts"])
        assert bits(train(state, stream, 7 - stop)) == bits(uninterrupted)


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    """``save`` returns before anything is written; the steps after it, which are given its buffers, change nothing."""
    _, shardings = step_and_shardings()
    state, stream = train(new_state(shardings), shuffled(range(3), seed=5), 1), shuffled(range(3), seed=5)
    wanted, trained, wait = bits(state), threading.Event(), ArrayWriter.wait

    def wait_for_training(writer):
        assert trained.wait(60)
        wait(writer)

    monkeypatch.setattr(ArrayWriter, "wait", wait_for_training)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, RunRecord({}))
        later = train(state, stream, 3)
        assert folders.steps_in(tmp_path) == []
        checkpoints.check()
        trained.set()
        assert checkpoints.steps() == [1]
        restored, _ = checkpoints.restore(target(shardings))
    assert bits(restored) == wanted != bits(later)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ValueError("the disk is full"), "make room, and start the run again"),
        (TimeoutError("after 1 s"), "the disk was too slow, or the clock was set; start the run again"),
    ],
)
def test_an_error_in_the_background_comes_out_at_the_next_look(error, remedy, tmp_path, monkeypatch):
    _, shardings = step_and_shardings()

    def fail(writer):
        raise error

    monkeypatch.setattr(ArrayWriter, "wait", fail)
    said = rf"step 1 in .* cannot be written \({type(error).__name__}: {error}\); there was none before: {remedy}$"
    for look in ("check", "wait", "steps", "close"):
        checkpoints = Checkpoints(tmp_path / look)
        checkpoints.save(1, new_state(shardings), RunRecord({}))
        concurrent.futures.wait([checkpoints._under_way])
        with pytest.raises(CheckpointError, match=said):
            getattr(checkpoints, look)()
        assert list((tmp_path / look).iterdir()) == []


def test_a_position_or_key_that_restarts_changes_the_run():
    """The naive resumes: data from the beginning, or a fresh key, with the right parameters."""
    _, shardings = step_and_shardings()
    uninterrupted = bits(train(new_state(shardings), shuffled(range(3), seed=5), 4))
    half = functools.partial(train, new_state(shardings), shuffled(range(3), seed=5), 2)
    assert bits(train(half(), shuffled(range(3), seed=5), 2)) != uninterrupted
    stream = shuffled(range(3), seed=5)
    fresh_key = dataclasses.replace(train(new_state(shardings), stream, 2), key=jax.random.key(0))
    resumed = dataclasses.replace(train(fresh_key, stream, 2), key=jax.random.key(7))
    assert bits(resumed) != uninterrupted


def test_restores_into_another_mesh(tmp_path):
    _, one = step_and_shardings()
    _, saved = step_and_shardings(4, 1)
    _, other = step_and_shardings(2, 4)
    state = new_state(saved)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, RunRecord({}))
        for shardings in (one, other):
            restored, _ = checkpoints.restore(target(shardings))
            assert bits(restored) == bits(new_state(one))
            assert jax.tree.map(lambda x: x.sharding, restored.params) == shardings.params
            assert jax.tree.map(lambda x: x.sharding, restored.optimizer_state) == shardings.optimizer_state
    assert {s.data.shape for s in restored.params["mix"].addressable_shards} == {(4, 8)}


def test_keeps_the_newest_and_every_nth(tmp_path):
    _, shardings = step_and_shardings()
    state = new_state(shardings)
    with Checkpoints(tmp_path, keep_last=2, keep_every_steps=4) as checkpoints:
        for step in range(1, 8):
            checkpoints.save(step, state, RunRecord({"prompts": step}))
        assert checkpoints.steps() == [4, 6, 7]
        assert checkpoints.record(4).position == {"prompts": 4}
        with pytest.raises(CheckpointError, match=r"no checkpoint of step 5; there are \[4, 6, 7\]"):
            checkpoints.restore(target(shardings), 5)
        with pytest.raises(CheckpointError, match="already holds step 6"):
            checkpoints.save(6, state, RunRecord({}))


def test_there_is_none(tmp_path):
    _, shardings = step_and_shardings()
    with Checkpoints(tmp_path / "new") as checkpoints:
        assert checkpoints.latest_step() is None
        with pytest.raises(CheckpointError, match="holds no complete checkpoint"):
            checkpoints.restore(target(shardings))
        with pytest.raises(CheckpointError, match="holds no complete checkpoint"):
            checkpoints.record()
    with pytest.raises(ValueError, match="keep_last=0"):
        Checkpoints(tmp_path, keep_last=0)


def test_a_half_written_checkpoint_is_none(tmp_path):
    """A write cut short leaves a directory without its final name or marker: the newest is the one before."""
    _, shardings = step_and_shardings()
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, new_state(shardings), RunRecord({}))
        checkpoints.save(2, new_state(shardings, 1), RunRecord({}))
    (tmp_path / "2").rename(tmp_path / "2.orbax-checkpoint-tmp")
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest_step() == 1
        assert bits(checkpoints.restore(target(shardings))[0]) == bits(new_state(shardings))


def test_another_tree_is_refused(tmp_path):
    _, shardings = step_and_shardings()
    sgd = from_optax(optax.sgd(0.1), optax.constant_schedule(0.1))
    sgd_shardings = state_shardings(toy_policy.init_params(), sgd, METHOD_STATE, toy_policy.AXES, shardings.step.mesh)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, new_state(shardings), RunRecord({}))
        with pytest.raises(CheckpointError, match=r"optimizer_state/.*mu/embedding is in the checkpoint alone"):
            checkpoints.restore(target(sgd_shardings, sgd))
        wider = toy_policy.init_params() | {"mix": jnp.zeros((8, 16))}
        with pytest.raises(CheckpointError, match=r"mix is float32\[8, 8\] in the checkpoint but float32\[8, 16\]"):
            checkpoints.restore(target(shardings, params=wider))
        halved = toy_policy.init_params() | {"mix": jnp.zeros((8, 8), jnp.bfloat16)}
        with pytest.raises(CheckpointError, match=r"mix is float32\[8, 8\] in the checkpoint but bfloat16\[8, 8\]"):
            checkpoints.restore(target(shardings, params=halved))
        more = toy_policy.init_params() | {"bias": jnp.zeros((8,))}
        axes = toy_policy.AXES | {"bias": ("embed",)}
        more_shardings = state_shardings(more, ADAMW, METHOD_STATE, axes, shardings.step.mesh)
        with pytest.raises(CheckpointError, match="params/bias is missing from the checkpoint"):
            checkpoints.restore(target(more_shardings, params=more))


def _damage(how, folder):
    if how == "no state":
        shutil.rmtree(folder / "state")
    elif how == "no metadata of the state":
        (folder / "state" / "_METADATA").unlink()
    elif how == "a record cut short":
        os.truncate(folder / "record.json", 10)
    else:
        largest = max((folder / "state" / "d").iterdir(), key=lambda file: file.stat().st_size)
        os.truncate(largest, largest.stat().st_size // 2)


@pytest.mark.parametrize("how", ["no state", "no metadata of the state", "a record cut short", "data cut short"])
def test_a_damaged_checkpoint_is_named_in_a_line_and_the_one_before_is_left(how, tmp_path):
    _, shardings = step_and_shardings()
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, new_state(shardings), RunRecord({}))
        checkpoints.save(2, new_state(shardings, 1), RunRecord({}))
    _damage(how, tmp_path / "2")
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(
            CheckpointError, match=r"checkpoint of step 2 in .* cannot be read .*; delete .*/2 "
        ) as caught:
            checkpoints.restore(target(shardings))
        assert "\n" not in str(caught.value)
        assert caught.value.__cause__ is not None
    shutil.rmtree(tmp_path / "2")
    with Checkpoints(tmp_path) as checkpoints:
        assert bits(checkpoints.restore(target(shardings))[0]) == bits(new_state(shardings))


def test_threads_whose_loop_is_gone_are_not_heard_and_all_others_are(monkeypatch):
    heard = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, value, trace: heard.append(value))
    ArrayWriter().close()
    ArrayWriter().close()  # there is one hook, however many writers
    mistake, other = RuntimeError("Event loop is open"), ValueError("Event loop is closed")
    for error in (RuntimeError("Event loop is closed"), mistake, other):
        sys.excepthook(type(error), error, None)
    assert heard == [mistake, other]


def test_what_a_library_says_of_a_failure_is_cut():
    assert said(OSError("no room")) == "OSError: no room"
    assert len(said(ValueError("DATA_LOSS: " + "x" * 5000))) < 250
    of_long_paths = said(ValueError(f'OUT_OF_RANGE: Error writing "{"folder/" * 100}": [OS error 27: File too large]'))
    assert "OUT_OF_RANGE" in of_long_paths
    assert "File too large" in of_long_paths
    assert said(CheckpointError("ours " * 100)) == ("ours " * 100).strip()


def test_neither_are_those_that_python_did_not_start(monkeypatch):
    heard = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: heard.append(raised.exc_value))
    ArrayWriter().close()
    mistake = RuntimeError("Event loop is open")
    for error in (RuntimeError("Event loop is closed"), mistake):
        sys.unraisablehook(types.SimpleNamespace(exc_type=type(error), exc_value=error, exc_traceback=None))
    assert heard == [mistake]
