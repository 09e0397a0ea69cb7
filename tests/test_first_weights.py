"""Where a run's weights come from: named checkpoints, copied once; what is damaged or another decoder's is refused."""

import dataclasses
import functools
import shutil

import jax
import numpy as np
import pytest

from rlagents import evaluate, learner, models
from rlagents.checkpoints import CheckpointError, Checkpoints, check_params_of, params_of
from rlagents.compilation import programs_kept
from rlagents.first_weights import (
    COPIED,
    REINFORCED,
    WARM_UP,
    check_restore_from,
    finished,
    first_weights,
    new_record,
    placed_params,
)
from rlagents.interruption import Interruption
from rlagents.machinery import random_params
from rlagents.methods import centered_advantage, chain, clipped_surrogate, kl_penalty_k3, method, token_mean
from rlagents.metrics import read_metrics
from rlagents.models.vocabulary import grown_config, with_special_tokens
from rlagents.timing import PhaseTimer
from rlagents.warm_up import warm_up
from rlagents.workdir import claim_workdir
from tests import smallest_run
from tests.checkpoint_faults import DAMAGES
from tests.test_train import running, small_config

DAMAGE = DAMAGES["one bit flipped"]


@pytest.fixture(scope="module", autouse=True)
def _programs_kept(tmp_path_factory):
    """Every draw of weights is a function of its own, and the same program."""
    with programs_kept(tmp_path_factory.mktemp("programs")):
        yield


@pytest.fixture(scope="module")
def config():
    made = small_config()
    made.supervised.steps = 0
    return made


@pytest.fixture(scope="module")
def machinery(config):
    with running(config) as made:
        yield made


@functools.cache
def weights_of(decoder, seed):
    return jax.device_get(random_params(decoder)(jax.random.key(seed), None))


def weights(machinery, seed):
    return jax.device_put(weights_of(machinery.experiment.decoder, seed), machinery.param_shardings)


def save(machinery, directory, steps):
    """Checkpoints of weights that were drawn from their step."""
    with Checkpoints(directory) as checkpoints:
        for step in steps:
            state = {"params": weights(machinery, step)}
            checkpoints.save(step, state, new_record(machinery.config, {"prompts": step}, 1.0))


def save_trained(machinery, directory, step):
    """With all that another optimizer and method remember."""
    params, optimizer = weights(machinery, step), machinery.experiment.supervised_optimizer
    axes, method_state = models.logical_axes(machinery.experiment.decoder), {"coefficient": np.float32(0.2)}
    shardings = learner.state_shardings(params, optimizer, method_state, axes, machinery.mesh)
    state = learner.create_state(params, optimizer, method_state, jax.random.key(0), shardings)
    with Checkpoints(directory) as checkpoints:
        checkpoints.save(step, state, new_record(machinery.config, {"prompts": step}, 1.0))


@pytest.fixture(scope="module")
def source(machinery, tmp_path_factory):
    """A run of two checkpoints of RL, 20 and 40, the last by another optimizer, and one of its warm-up, 7."""
    folder = tmp_path_factory.mktemp("source") / "run"
    save(machinery, folder / REINFORCED, (20,))
    save_trained(machinery, folder / REINFORCED, 40)
    save(machinery, folder / WARM_UP, (7,))
    return folder


def from_source(machinery, source):
    config = machinery.config.copy_and_resolve_references()
    config.checkpoint.restore_from = str(source)
    return dataclasses.replace(machinery, config=config)


def same(params, wanted):
    jax.tree.map(np.testing.assert_array_equal, params, wanted)


@pytest.mark.parametrize(
    ("folder", "step"),
    [(".", 40), (REINFORCED, 40), (f"{REINFORCED}/20", 20), (f"{REINFORCED}/40", 40), (WARM_UP, 7)],
)
def test_the_weights_of_a_run_of_its_checkpoints_or_of_one(folder, step, source, machinery, tmp_path, capsys):
    machinery = from_source(machinery, source / folder)
    check_restore_from(machinery, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    params = first_weights(machinery, tmp_path / "run")
    same(params, weights(machinery, step))
    assert jax.tree.map(lambda leaf: leaf.sharding, params) == machinery.param_shardings
    where = (source / folder).resolve()
    assert f"weights: those of {where if where.name.isdecimal() else source}" in capsys.readouterr().out


def test_a_run_keeps_its_first_weights_whatever_becomes_of_the_other(source, machinery, tmp_path, capsys):
    other, workdir = shutil.copytree(source, tmp_path / "other"), tmp_path / "run"
    machinery = from_source(machinery, other)
    first = first_weights(machinery, workdir)
    save(machinery, other / REINFORCED, (60,))
    same(first_weights(machinery, workdir), first)
    shutil.rmtree(other)
    check_restore_from(machinery, workdir)
    same(first_weights(machinery, workdir), first)
    # What a warm-up of no steps returns, and what is evaluated as the policy before RL.
    same(warm_up(machinery, workdir, PhaseTimer(), Interruption()), first)
    params, step = evaluate.trained_params(machinery, workdir, 0)
    same(params, first)
    assert step == 0
    # Damaged, it is no reason to take others.
    DAMAGE(workdir / COPIED / "0" / "record.json")
    with pytest.raises(CheckpointError, match="none that is whole"):
        first_weights(machinery, workdir)


def test_of_a_run_whose_newest_is_damaged_the_one_before(source, machinery, tmp_path):
    other = shutil.copytree(source, tmp_path / "other")
    DAMAGE(other / REINFORCED / "40" / "manifest.json")
    params, where = params_of(other, placed_params(machinery))
    same(params, weights(machinery, 20))
    assert where == f"those of {other / REINFORCED / '20'}"
    DAMAGE(other / REINFORCED / "20" / "record.json")
    with pytest.raises(CheckpointError, match=r"no whole checkpoint .*give the folder of a run"):
        params_of(other, placed_params(machinery))
    # Named itself, it is read or refused.
    with pytest.raises(CheckpointError, match=r"20 cannot be read \(record\.json has other bytes.*give another one"):
        params_of(other / REINFORCED / "20", placed_params(machinery))


def test_what_is_no_checkpoint_or_another_decoder_s_is_refused_before_anything_is_written(
    source, machinery, config, tmp_path
):
    (tmp_path / "empty").mkdir()
    for nothing in ("empty", "nowhere"):
        with pytest.raises(CheckpointError, match="holds no complete checkpoint; give the folder of a run"):
            check_restore_from(from_source(machinery, tmp_path / nothing), tmp_path / "run")
    wider = config.copy_and_resolve_references()
    wider.model.update({"mlp_dim": 32})
    with running(wider) as other, pytest.raises(CheckpointError) as caught:
        check_params_of(source, placed_params(other))
    said = str(caught.value)
    assert f"the checkpoint {source / REINFORCED / '40'} holds the weights of another decoder (3 differences: " in said
    assert "params/layers/mlp/down is float32[1, 64, 32] in the checkpoint but float32[1, 32, 32] here" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("added", [0, 2])
def test_a_checkpoint_of_another_vocabulary_is_refused_with_both_sizes(added, source, machinery):
    decoder = machinery.experiment.decoder
    grown = grown_config(decoder, decoder.vocab_size + added)
    other = dataclasses.replace(machinery, experiment=dataclasses.replace(machinery.experiment, decoder=grown))
    with pytest.raises(CheckpointError, match="holds the weights of another decoder") as caught:
        check_params_of(source, placed_params(other))
    shapes = [f"float32[{rows}, {decoder.embed_dim}]" for rows in (decoder.vocab_size, grown.vocab_rows)]
    assert f"params/embedding is {shapes[0]} in the checkpoint but {shapes[1]} here" in str(caught.value)


def test_weights_with_new_rows_say_so(machinery, tmp_path, capsys):
    experiment, tokenizer = machinery.experiment, machinery.experiment.chat.tokenizer
    given = experiment.decoder, experiment.make_params, tokenizer, ["<|high|>"]
    decoder, make, _ = with_special_tokens(*given, multiple_of=1)
    grown = dataclasses.replace(
        machinery, experiment=dataclasses.replace(experiment, decoder=decoder, make_params=make)
    )
    params = first_weights(grown, tmp_path)
    assert params["embedding"].shape[0] == experiment.decoder.vocab_size + 1
    np.testing.assert_array_equal(params["embedding"][:-1], weights(machinery, 0)["embedding"])
    assert "own, from scratch, drawn from seed 0, with new rows for 1 tokens\n" in capsys.readouterr().out


@pytest.mark.parametrize(("scratch", "said"), [(True, "from scratch, drawn from seed 0"), (False, "pretrained")])
def test_without_a_name_the_experiment_s_own(scratch, said, machinery, tmp_path, capsys):
    decoder = machinery.experiment.decoder
    make = random_params(decoder) if scratch else lambda key, shardings: random_params(decoder)(key, shardings)
    experiment = dataclasses.replace(machinery.experiment, make_params=make)
    machinery = dataclasses.replace(machinery, experiment=experiment)
    same(first_weights(machinery, tmp_path), weights(machinery, 0))
    assert capsys.readouterr().out == f"weights: the experiment's own, {said}\n"
    # A run that goes on says so itself.
    save(machinery, tmp_path / REINFORCED, (1,))
    first_weights(machinery, tmp_path)
    assert capsys.readouterr().out == ""


def test_a_run_is_finished_when_its_last_checkpoint_is_whole(machinery, config, tmp_path):
    assert not finished(tmp_path / "nowhere", config)
    claim_workdir(tmp_path, config)
    assert not finished(tmp_path, config)
    save(machinery, tmp_path / REINFORCED, (config.rl.steps - 1,))
    assert not finished(tmp_path, config)
    save(machinery, tmp_path / REINFORCED, (config.rl.steps,))
    assert finished(tmp_path, config)
    other = config.copy_and_resolve_references()
    other.seed = 1
    with pytest.raises(ValueError, match="seed is 1, was 0"):
        finished(tmp_path, other)
    DAMAGE(tmp_path / REINFORCED / str(config.rl.steps) / "record.json")
    assert not finished(tmp_path, config)


def test_evaluation_takes_the_newest_whole_one_or_the_one_asked_for(source, machinery, tmp_path, capsys):
    workdir = shutil.copytree(source, tmp_path / "run")
    for asked, step in ((None, 40), (20, 20), (40, 40)):
        params, found = evaluate.trained_params(machinery, workdir, asked)
        same(params, weights(machinery, step))
        assert found == step
    with pytest.raises(ValueError, match=r"no checkpoint of step 30; there are \[20, 40\]"):
        evaluate.trained_params(machinery, workdir, 30)
    before = sorted(workdir.rglob("*"))
    DAMAGE(workdir / REINFORCED / "40" / "record.json")
    params, found = evaluate.trained_params(machinery, workdir, None)
    same(params, weights(machinery, 20))
    assert found == 20
    assert "WARNING: the checkpoint of step 40" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match=r"step 40 in .* cannot be read"):
        evaluate.trained_params(machinery, workdir, 40)
    DAMAGE(workdir / REINFORCED / "20" / "record.json")
    with pytest.raises(ValueError, match="no checkpoint that is whole"):
        evaluate.trained_params(machinery, workdir, None)
    assert sorted(workdir.rglob("*")) == before, "evaluation changes nothing"


@pytest.mark.usefixtures("no_processes")
def test_weights_before_rl_are_asked_for_only_by_who_compares_with_them(tmp_path):
    """A run goes on after its own checkpoint, whatever has become of what it began with."""
    config, workdir = smallest_run.get_config(), tmp_path / "run"
    smallest_run.run(config, tmp_path / "first")
    config.checkpoint.update({"restore_from": str(tmp_path / "first"), "every_steps": 2, "keep_last": 3})
    smallest_run.run(config, workdir)
    metrics = compared(workdir)
    shutil.rmtree(workdir / REINFORCED / "5")
    DAMAGE(workdir / COPIED / "0" / "record.json")
    compares = method(chain(centered_advantage(), clipped_surrogate(0.2, 0.2), kl_penalty_k3(0.1)), token_mean())
    with pytest.raises(CheckpointError, match=r"first_weights holds checkpoints, but none that is whole"):
        smallest_run.run(config, workdir, method=compares)
    assert not (workdir / REINFORCED / "5").exists()
    smallest_run.run(config, workdir)
    assert compared(workdir) == metrics
    assert (workdir / REINFORCED / "5").exists()


def compared(workdir):
    """Metrics of a run but for what takes time."""
    return [
        {name: value for name, value in row.items() if "second" not in name}
        for row in read_metrics(workdir / "metrics.jsonl")
    ]
