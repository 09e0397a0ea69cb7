"""What no run would get through is refused at the start, in one line that names the key."""

import dataclasses
import os
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from ml_collections import ConfigDict

from experiments.quickstart import procedural
from experiments.rc_grpo import bfcl
from rlagents import config_checks, config_sections, learner, machinery, section_checks
from rlagents.command_line import _explained
from rlagents.experiment import load_experiment, load_module
from rlagents.methods import (
    chain,
    clipped_surrogate,
    group_advantage,
    masked_sequence_weights,
    masked_token_weights,
    method,
    penalty,
    surrogate,
    token_mean,
    truncated_sequence_weights,
    truncated_token_weights,
)
from rlagents.problems import ConfigError
from rlagents.rollouts.conditions import fixed, reward_goal, stratified
from rlagents.rollouts.members import Limits
from rlagents.workdir import claim_workdir
from tests.refusing import changed, refusal
from tests.test_train import CONFIG_FILE, ROOT, small_config

# One device, however many the tests run on.
ONE_DEVICE = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}


BAD_VALUES = [
    ({"sampler.decode_rows": 17}, "sampler.decode_rows=17 is more than num_rows=16; give at most 16."),
    ({"sampler.extend_rows": 17}, "sampler.extend_rows=17 is more than num_rows=16"),
    ({"sampler.prefill_groups": 9}, "sampler.prefill_groups=9 is more than num_groups=8"),
    ({"sampler.num_groups": 12}, "sampler.num_groups is 12, which cannot be split over 8 parts of the mesh"),
    ({"sampler.num_rows": 20}, "sampler.num_rows is 20, which cannot be split over 8 parts of the mesh"),
    ({"rl.group_size": 17}, "rl.group_size is 17, but sampler.num_rows is 16, so that no group ever fits"),
    ({"evaluation.samples_per_task": 17}, "evaluation.samples_per_task is 17, but sampler.num_rows is 16"),
    ({"trace_buckets.member_buckets": (2,)}, "trace_buckets: of the demonstration of task 'procedural-train"),
    ({"rl.group_size": 0}, "rl.group_size is 0"),
    ({"rl.prompts_per_step": 8.0}, "rl.prompts_per_step is 8.0; give a whole number"),
    ({"rl.steps": -1}, "rl.steps is -1"),
    ({"rl.max_draws": 0}, "rl.max_draws is 0; give a whole number >= 1"),
    ({"rl.stop_early": "no"}, "rl.stop_early is 'no'; give True or False"),
    ({"rl.reuse_policy_as_old": 0}, "rl.reuse_policy_as_old is 0; give True or False"),
    ({"buckets.share_prefix": "no"}, "buckets.share_prefix is 'no'; give True or False"),
    ({"buckets.share_prefix": False}, "the largest of buckets.member_buckets is 64, but a rollout may need"),
    ({"sampler.share_prefix": False}, "sampler.share_prefix is False, so that a member holds its whole prompt"),
    ({"rl.rollouts_ahead": 2}, "rl.rollouts_ahead is 2; give 0 (every batch is sampled with the weights that learn"),
    ({"rl.rollouts_ahead": True}, "rl.rollouts_ahead is True; give 0"),
    *[
        ({"rl.over_sample": value}, f"rl.over_sample is {value!r}; give a number >= 1")
        for value in (0.5, "2", float("inf"), float("nan"), True, 1e30, 10**400)
    ],
    ({"rl.pack_micro_batches": 1}, "rl.pack_micro_batches is 1; give True"),
    ({"supervised.steps": -1}, "supervised.steps is -1"),
    ({"supervised.traces": 0}, "supervised.traces is 0"),
    ({"evaluation.samples_per_task": 0}, "evaluation.samples_per_task is 0"),
    ({"evaluation.num_tasks": 0}, "evaluation.num_tasks is 0"),
    ({"evaluation.every_steps": -1}, "evaluation.every_steps is -1"),
    ({"checkpoint.every_steps": 0}, "checkpoint.every_steps is 0"),
    ({"checkpoint.keep_last": 0}, "checkpoint.keep_last is 0; give a whole number >= 1"),
    ({"checkpoint.keep_best": 1}, "checkpoint.keep_best is 1, but evaluation.every_steps is 0"),
    ({"checkpoint.keep_worst": 1}, "checkpoint.keep_worst is no known key; checkpoint takes every_steps, keep_last"),
    ({"rl.wait_for_tools": 1}, "rl.wait_for_tools is 1; give True or False"),
    ({"rl.prompts_per_micro_batch": 3}, "rl.prompts_per_micro_batch is 3, which does not divide"),
    ({"rl.prompts_per_micro_batch": 4}, "split over 8 parts of the mesh"),
    ({"rl.updates_per_batch": 3}, "rl.updates_per_batch is 3, which does not divide rl.prompts_per_step, 8"),
    ({"rl.updates_per_batch": 2}, "rl.prompts_per_micro_batch is 8, which does not divide the prompts of an update, 4"),
    ({"rl.members_per_micro_batch": 0}, "rl.members_per_micro_batch is 0"),
    ({"rl.group_size": 4, "rl.members_per_micro_batch": 3}, "rl.members_per_micro_batch is 3, which does not divide"),
    ({"supervised.prompts_per_micro_batch": 3}, "supervised.prompts_per_micro_batch is 3, which does not divide"),
    ({"rule.temperature": -0.5}, "rule.temperature is -0.5"),
    ({"rule.temperature": 0.0}, "rule.temperature is 0, which takes the most likely token"),
    ({"buckets.member_buckets": (32, 63)}, "buckets.member_buckets is 63, but a rollout may need 64"),
    ({"buckets.prefix_buckets": (110,)}, "buckets.prefix_buckets is 110, but a rollout may need 111"),
    ({"buckets.turn_buckets": (3,)}, "buckets.turn_buckets is 3, but a rollout may need 4"),
    ({"buckets.turn_buckets": ()}, "buckets.turn_buckets is ()"),
    ({"seed": -1}, "seed is -1"),
    ({"seed": 2**32}, "seed is 4294967296"),
]


@pytest.mark.parametrize(("values", "said"), BAD_VALUES, ids=[said[:60] for _, said in BAD_VALUES])
def test_bad_values_are_refused(values, said, experiment, no_workers):
    assert said in refusal(changed(values), experiment)


@pytest.mark.parametrize(
    "values",
    [
        {"seed": 2**32 - 1, "evaluation.samples_per_task": 16},
        {"rl.steps": 0, "rule.temperature": 0.0},
        {"rl.group_size": 4, "rl.members_per_micro_batch": 2},
        {"rl.over_sample": 3, "rl.max_draws": 5},
        {"sampler.extend_rows": None, "sampler.block_steps": np.int64(4)},
        {"rl.steps": 0, "rl.group_size": 17},
        {"rule.top_k": 5, "rule.top_p": 1},
        {"passes.activation_gigabytes": np.float32(0.5), "rl.over_sample": 100},
        {"supervised.steps": 0, "trace_buckets.member_buckets": ()},
        {"rl.pack_micro_batches": True},
        # The sampler has no room for more.
        {"limits.max_response_tokens": 500},
        {"supervised": ConfigDict({"steps": 0})},
    ],
)
def test_what_works_is_taken(values, experiment, no_workers):
    machinery.assemble(changed(values), experiment).close()


def test_all_counts_that_are_wrong_are_told():
    with pytest.raises(ConfigError) as caught:
        config_checks.check_counts(changed({"seed": -1, "rl.steps": -2, "rl.epochs": 0}))
    assert [line.partition(";")[0] for line in sorted(caught.value.lines)] == [
        "rl.epochs is 0",
        "rl.steps is -2",
        "seed is -1",
    ]


def test_several_processes_pack_no_micro_batches(experiment, no_workers, monkeypatch):
    monkeypatch.setattr(config_checks.jax, "process_count", lambda: 2)
    assert "rl.pack_micro_batches is True, but 2 processes train" in refusal(
        changed({"rl.pack_micro_batches": True}), experiment
    )
    config_checks.check_division(changed({"rl.pack_micro_batches": False}), prompt_shards=8)


def test_evaluation_alone_may_take_the_most_likely_token(experiment, no_workers):
    config = changed({"rule.temperature": 0.0, "buckets.turn_buckets": (1,)})
    machinery.assemble(config, experiment, trains=False).close()
    assert "rule.temperature is -1" in refusal(changed({"rule.temperature": -1.0}), experiment, trains=False)


@pytest.mark.parametrize("config", [procedural.get_config(), bfcl.get_config()], ids=["quickstart", "rc_grpo"])
def test_the_shipped_configs_pass(config):
    config_sections.check_sections(config)
    config_checks.check_counts(config)
    section_checks.check_rule(config, trains=True)
    section_checks.check_workers(config)
    section_checks.check_sampler(config, prompt_shards=1, trains=True)
    if config.supervised.steps:
        config_checks.check_trace_buckets(config)
    config_checks.check_division(config, prompt_shards=1)
    config_checks.check_buckets(config, Limits(**config.limits))


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("rl", "the config has no rl; training needs seed, mesh, limits"),
        ("seed", "the config has no seed; training needs seed, mesh"),
        ("trace_buckets", "the config has no trace_buckets, which the warm-up needs"),
        ("rl.group_size", "the config has no rl.group_size; rl needs steps, prompts_per_step, group_size"),
        ("rl.over_sample", "the config has no rl.over_sample"),
        ("rl.pack_micro_batches", "the config has no rl.pack_micro_batches"),
        ("rl.max_draws", "the config has no rl.max_draws"),
        ("rl.stop_early", "the config has no rl.stop_early"),
        ("rl.reuse_policy_as_old", "the config has no rl.reuse_policy_as_old"),
        ("rl.rollouts_ahead", "the config has no rl.rollouts_ahead"),
        ("compilation_cache", "the config has no compilation_cache; training needs seed, mesh"),
        ("limits.max_turns", "the config has no limits.max_turns; limits takes max_turns, max_turn_tokens"),
        ("evaluation.limits.max_turns", "the config has no evaluation.limits.max_turns"),
        ("sampler.num_rows", "the config has no sampler.num_rows; sampler takes num_groups, num_rows"),
        ("supervised.traces", "the config has no supervised.traces"),
    ],
)
def test_a_missing_section_or_key_is_named(missing, said, experiment, no_workers):
    config = small_config()
    section, _, key = missing.rpartition(".")
    with config.unlocked():
        del (config_sections.value_of(config, section) if section else config)[key]
    assert said in refusal(config, experiment)


def test_an_argument_that_nothing_takes_is_named(experiment, no_workers):
    config = changed({"workers": ConfigDict({"num_workers": 1, "step_timeout": 1.0})})
    assert "workers.step_timeout is no known key; workers takes num_workers" in refusal(config, experiment)


def test_what_members_cannot_be_told_is_refused(experiment, no_workers):
    too_many, none = reward_goal(stratified(3)), reward_goal(fixed(5))
    for name, messages, said in (
        (
            "member_messages",
            too_many,
            "member_messages of build(config): stratified(k=3) cannot draw 3 of a group of 2",
        ),
        ("evaluation_messages", none, "evaluation_messages of build(config): drew condition 5"),
    ):
        changed_experiment = dataclasses.replace(experiment, **{name: messages})
        assert said in refusal(small_config(), changed_experiment)
    # Who only evaluates, or does not learn from rollouts, tells no member of a training group anything.
    told = dataclasses.replace(experiment, member_messages=too_many)
    machinery.assemble(small_config(), told, trains=False).close()
    machinery.assemble(changed({"rl.steps": 0}), told).close()
    # An opening that the environment cannot give is the rollout's affair: it skips the task.
    mute = mock.Mock(wraps=experiment.environment, max_turns=8, opening=mock.Mock(side_effect=KeyError("task")))
    with mock.patch.object(machinery, "_tool_workers"):
        machinery.assemble(small_config(), dataclasses.replace(told, environment=mute)).close()
    assert mute.opening.called


CORRECTED = (truncated_token_weights, masked_token_weights, truncated_sequence_weights, masked_sequence_weights)
COMPARES_WITH_ROLLOUT = surrogate("compares_with_rollout", lambda *_: None, {"rollout"})
LOOKS_AT_ROLLOUT = penalty("looks_at_rollout", lambda *_: None, {"old", "rollout"})


def test_rollouts_ahead_want_a_method_that_makes_up_for_older_weights(experiment, no_workers):
    ahead, estimate, clip = changed({"rl.rollouts_ahead": 1}), group_advantage(ddof=0, epsilon=1e-6), (0.2, 0.2)

    def using(*stages):
        return dataclasses.replace(experiment, method=method(chain(estimate, *stages), token_mean()))

    said = refusal(ahead, using(clipped_surrogate(*clip)))
    assert "no stage of the method (group_advantage, clipped_surrogate) makes up for it; add truncated_token_" in said
    # To look is not to make up for it.
    assert "(group_advantage, clipped_surrogate, looks_at" in refusal(
        ahead, using(clipped_surrogate(*clip), LOOKS_AT_ROLLOUT)
    )
    for weights in CORRECTED:
        machinery.assemble(ahead, using(weights(2.0), clipped_surrogate(*clip))).close()
    machinery.assemble(ahead, using(COMPARES_WITH_ROLLOUT)).close()
    # Who samples nothing ahead may do without.
    machinery.assemble(small_config(), using(clipped_surrogate(*clip))).close()
    machinery.assemble(changed({"rl.rollouts_ahead": 1, "rl.steps": 0}), using(clipped_surrogate(*clip))).close()
    machinery.assemble(ahead, using(clipped_surrogate(*clip)), trains=False).close()


def test_tasks_that_are_not_there_are_refused(experiment, no_workers):
    def unknown_levels(position):
        raise ValueError("levels are taken from [1], got [7].")

    for parts, said in (
        ({"held_out": []}, "held_out of build(config) has no first task"),
        ({"held_out": [experiment.held_out[0]] * 7}, "evaluation.num_tasks is 8, but held_out of build(config) has no"),
        ({"supervised_stream": unknown_levels}, "supervised_stream of build(config) has no first task (levels are"),
        ({"train_stream": unknown_levels}, "has no first task (levels are taken from [1], got [7].)"),
    ):
        assert said in refusal(small_config(), dataclasses.replace(experiment, **parts))


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("part", ["optimizer", "supervised_optimizer"])
def test_learning_rates_that_are_none_are_refused(part, rate, experiment, no_workers):
    # It goes wrong in the last update alone.
    last = (changed({}).rl.steps if part == "optimizer" else small_config().supervised.steps) - 1
    wrong = learner.make_optimizer(lambda update: rate if update == last else 0.1)
    said = refusal(small_config(), dataclasses.replace(experiment, **{part: wrong}))
    assert (
        said
        == f"{part} of build(config) has the learning rate {rate:g} at update {last}; give a schedule of numbers >= 0."
    )
    machinery.assemble(
        changed({"rl.steps": 0, "supervised.steps": 0}), dataclasses.replace(experiment, **{part: wrong})
    ).close()


def test_the_environment_bounds_the_turns(experiment, no_workers):
    environment = dataclasses.replace(experiment.environment, max_turns=3)
    config = changed({"evaluation.limits.max_turns": 2, "buckets.turn_buckets": (3,)})
    made = machinery.assemble(config, dataclasses.replace(experiment, environment=environment))
    assert (made.limits.max_turns, made.evaluation_limits.max_turns) == (3, 2)


@pytest.fixture
def any_prompt(monkeypatch):
    """Manuals of the official tools are longer than the quickstart's budget."""
    monkeypatch.setattr("rlagents.experiment_checks.check_prompts", lambda *arguments, **options: None)


@pytest.mark.usefixtures("any_prompt")
def test_an_environment_of_the_config_file_is_refused(experiment, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from rlagents.environments.bfcl import BfclEnvironment\n"
        "class Mine(BfclEnvironment): pass\n"
        "def build(config): return Mine()\n"
    )
    other = dataclasses.replace(experiment, environment=load_module(file).build(None))
    said = refusal(changed({"supervised.steps": 0}), other)
    assert "class Mine is defined in the config file" in said
    assert str(file) in said
    assert "importable module that does not import jax" in said


class LoadsNowhere(type(procedural.procedural_environment())):
    def __reduce__(self):
        return (int, ("no number",))


@pytest.mark.usefixtures("any_prompt")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (LoadsNowhere, "tool workers cannot load the environment LoadsNowhere: ValueError: invalid literal for int()"),
        (
            lambda: dataclasses.replace(procedural.procedural_environment(), show=lambda call, execution: ""),
            "cannot be pickled for the tool workers",
        ),
    ],
)
def test_an_environment_that_workers_cannot_load_is_refused_in_a_line(make, said, experiment):
    other = dataclasses.replace(experiment, environment=make())
    assert said in refusal(changed({"supervised.steps": 0}), other)


def test_a_key_that_build_asks_for_is_named(tmp_path):
    file = tmp_path / "asks.py"
    file.write_text("def build(config): return config.rl.horizon\n")
    with pytest.raises(ValueError, match=r"build\(config\) of .*asks\.py asks for 'horizon'.*now has .*rl"):
        load_experiment(file, small_config())
    file.write_text("def build(config): return {}['horizon']\n")
    with pytest.raises(KeyError):  # a mistake of the file's own
        load_experiment(file, small_config())


def test_a_damaged_config_json_is_named(tmp_path):
    claim_workdir(tmp_path / "run", small_config())
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["config.json"]
    stored = tmp_path / "run" / "config.json"
    stored.write_text(stored.read_text()[:50])
    with pytest.raises(ValueError, match=r"run/config\.json is damaged"):
        claim_workdir(tmp_path / "run", small_config())
    stored.rename(stored.with_name("config.json.unfinished"))
    claim_workdir(tmp_path / "run", small_config())


def test_optimizers_of_no_steps_can_be_built():
    procedural.build(changed({"supervised.steps": 0, "rl.steps": 0}))


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--config.rl.stepz=1", "the config has no key rl.stepz; the keys of rl are epochs,"),
        ("--config.rl.steps.x=1", "rl.steps is a value, 36, and no section"),
    ],
)
def test_an_unknown_key_is_explained(option, said):
    argv = ["train", f"--config={CONFIG_FILE}", option]
    assert said in _explained(AttributeError(KeyError("'nope'")), argv)


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("x = 1\n", [], "has no get_config()"),
        ("def get_config(): return 3\n", [], "gives a int"),
        ("# Title\nNot Python at all.\n", [], "is not Python"),
        (None, [], "is no file"),
        (None, ["--config.seed=1"], "is no file"),
        ((ROOT / CONFIG_FILE).read_text(), ["--config.nope=1"], "the config has no key nope; its keys are"),
        ((ROOT / CONFIG_FILE).read_text(), ["--config.seed=-1"], "seed is -1"),
    ],
)
def test_a_bad_config_file_is_told_in_a_line(text, options, said, tmp_path):
    file, workdir = tmp_path / "file.py", tmp_path / "run"
    if text is not None:
        file.write_text(text)
    command = [sys.executable, "-m", "rlagents.train", f"--config={file}", f"--workdir={workdir}", *options]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, env=ONE_DEVICE)
    assert result.returncode == 2
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("rlagents.train: ")]
    assert said in line
    assert "Traceback" not in result.stderr
    assert not workdir.exists()
