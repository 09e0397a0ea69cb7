"""A value that is none of its key's kind is refused by the key's full name, whatever takes it later."""

import math
import sys
from unittest import mock

import pytest
from absl import flags
from ml_collections import ConfigDict, config_flags

from experiments.quickstart import procedural
from experiments.rc_grpo import bfcl
from rlagents import command_line, config_checks, machinery, reinforce
from rlagents.interruption import Interruption
from rlagents.timing import PhaseTimer
from tests.refusing import changed, refusal
from tests.test_train import CONFIG_FILE, ROOT

NO_NUMBERS = ("", "abc", None, True, float("nan"), float("inf"))
NO_SIZES = (0, -1, 256.0, *NO_NUMBERS)
WRONG = [
    *[
        (f"sampler.{name}", value, "; give a whole number >= 1.")
        for name in ("num_groups", "num_rows", "decode_rows", "max_member_tokens", "extend_rows", "extend_chunk_tokens")
        for value in NO_SIZES
        if name != "extend_rows" or value is not None
    ],
    *[(f"sampler.{name}", 0.5, "; give a whole") for name in ("prefill_groups", "block_steps")],
    ("sampler.share_prefix", "no", "; give True or False"),
    ("sampler.few_query_attention", 1, "; give True or False"),
    *[("sampler.blocks_in_flight", value, "; give 2, or 1 to read") for value in (3, 2.0, *NO_SIZES)],
    *[
        (f"passes.{name}", value, "; give a whole number >= 0.")
        for name in (
            "loss_chunk_tokens",
            "head_chunk_tokens",
            "layer_chunk_tokens",
            "attention_chunk_logits",
            "attention_parts",
        )
        for value in (-1, 12.0, 0.5, *NO_NUMBERS)
    ],
    *[("passes.activation_gigabytes", value, "; give a number >= 0.") for value in (-1, *NO_NUMBERS)],
    *[("rule.temperature", value, "; give a number >= 0") for value in (-1, "1", *NO_NUMBERS)],
    *[("rule.top_k", value, "; give a whole number >= 1, or None") for value in (2.0, "2", True)],
    *[("rule.top_p", value, "; give a number in (0, 1], or None") for value in ("1", True)],
    *[
        (f"{section}.{name}_buckets", value, "; give at least one length, each a whole number >= 1.")
        for section, name in (("trace_buckets", "prefix"), ("trace_buckets", "turn"), ("buckets", "member"))
        for value in ((), "x", (0,), (2.5,), (True,), None, 64)
    ],
    *[
        (name, value, "; give a whole number >= 1.")
        for name in ("limits.max_turns", "evaluation.limits.max_turn_tokens", "mesh.data", "workers.num_workers")
        for value in (0, 1.5, "1", True, None)
    ],
    *[(f"checkpoint.{name}", value, "; give a whole number >= 1.") for name in ("every_steps",) for value in NO_SIZES],
    *[("checkpoint.keep_best", value, "; give a whole number >= 0.") for value in (-1, 1.5, *NO_NUMBERS)],
    *[("checkpoint.restore_from", value, "; give the folder of a run") for value in (None, 3)],
    *[("rl.wait_for_tools", value, "; give True or False") for value in (None, "yes")],
    *[("trajectories.every_steps", value, "; give a whole number >= 0.") for value in (-1, 0.5, *NO_NUMBERS)],
    *[("trajectories.groups", value, "; give a whole number >= 1.") for value in (0, 1.5, *NO_NUMBERS)],
    *[("trajectories.max_megabytes", value, "; give a number > 0.") for value in (0, -1.0, *NO_NUMBERS)],
    *[("workers.step_timeout_seconds", value, "; give a number > 0.") for value in (0, -1.0, *NO_NUMBERS)],
    *[("alarms.max_policy_ratio", value, "; give a number > 0.") for value in (0, *NO_NUMBERS)],
    *[("alarms.max_garbled_turns", value, "; give a share, a number >= 0 and <= 1.") for value in (1.01, *NO_NUMBERS)],
    *[("alarms.patience", value, "; give a whole number >= 1.") for value in NO_SIZES],
    ("alarms.stop", "kl_exploded", "; give names of alarms, such as ('non_finite',), or ()"),
    ("logging.tensorboard", "yes", "; give True or False."),
    *[(f"sampler.{name}", 2**31, "; give a whole number below 2**31.") for name in ("block_steps", "num_rows")],
    ("buckets.member_buckets", (64, 2**40), "; give lengths below 2**31."),
    ("workers.max_retries", 2**63, "; give a whole number below 2**63."),
    ("train_levels", (1, -(2**63)), "; give a whole number below 2**63."),
    ("method.kl_coefficient", math.nan, "; give a number."),
    ("logging.wandb", False, "; give the name of a project, or ''"),
    *[("logging.max_megabytes", value, "; give a number > 0.") for value in (0, *NO_NUMBERS)],
    *[("watchdog.stalled_after_seconds", value, "; give a number >= 0.") for value in (-1, *NO_NUMBERS)],
]


@pytest.mark.parametrize(("name", "value", "said"), WRONG, ids=lambda part: repr(part)[:40])
def test_a_value_that_is_none_of_its_kind_is_refused_by_its_full_name(name, value, said, experiment, no_workers):
    found = refusal(changed({name: value}), experiment)
    assert f"{name} is {value!r}" in found
    assert said in found


def test_an_alarm_that_there_is_not_is_refused_with_the_one_that_was_meant(experiment, no_workers):
    found = refusal(changed({"alarms.stop": ("kl_explodes",)}), experiment)
    assert found.startswith("alarms.stop names 'kl_explodes', which is no alarm (did you mean 'kl_exploded'?)")


def test_a_log_whose_library_is_missing_is_refused_with_what_to_install(experiment, no_workers, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    found = refusal(changed({"logging.wandb": "agents"}), experiment)
    assert found.startswith("logging.wandb names a project of Weights & Biases, but its library is not installed;")
    assert "(pip install wandb)" in found


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        (3, "3; give a folder"),
        (None, "None; give a folder"),
        ("/dev/null", "'/dev/null', but /dev/null is no folder; give a folder"),
        ("/dev/null/kept", "/dev/null is no folder"),
        ("../file/kept", "/file is no folder"),
        ("locked/kept", "/locked; give a folder"),
    ],
)
def test_programs_can_be_kept_only_in_a_folder(folder, said, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    (tmp_path / "run" / "locked").mkdir(parents=True)
    monkeypatch.setattr(config_checks.os, "access", lambda path, mode: path.name != "locked")  # root may write anywhere
    with pytest.raises(ValueError, match=f"^compilation_cache is (?={folder!r}).*{said}"):
        config_checks.check_compilation_cache(changed({"compilation_cache": folder}), tmp_path / "run")


def test_a_folder_for_programs_need_not_be_there_yet(tmp_path):
    for folder in ("", ".", "../kept", str(tmp_path / "a" / "b")):
        config_checks.check_compilation_cache(changed({"compilation_cache": folder}), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_others_fill_need_not_be_writable(tmp_path, monkeypatch):
    monkeypatch.setattr(config_checks.os, "access", lambda path, mode: False)
    config_checks.check_compilation_cache(changed({"compilation_cache": "."}), tmp_path)


def test_options_are_refused_with_no_folder_for_programs(tmp_path, monkeypatch):
    monkeypatch.setattr(command_line.config_flags, "get_config_filename", lambda flag: str(ROOT / CONFIG_FILE))
    monkeypatch.setattr(command_line, "CONFIG", mock.Mock(value=changed({"compilation_cache": "file"})))
    monkeypatch.setattr(command_line, "WORKDIR", mock.Mock(value=str(tmp_path)))
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"compilation_cache is 'file', but .*/file is no folder"):
        command_line.read_options()


@pytest.mark.parametrize("make", [procedural.get_config, bfcl.get_config])
@pytest.mark.parametrize(("text", "value"), [("None", None), ("2", 2)])
def test_members_per_micro_batch_can_be_set_and_unset_on_the_command_line(make, text, value, monkeypatch):
    argv = ["train", f"--config.rl.members_per_micro_batch={text}"]
    monkeypatch.setattr(sys, "argv", argv)  # where ml_collections looks for the keys
    values, config = flags.FlagValues(), make()
    config.rl.members_per_micro_batch = 1
    given = config_flags.DEFINE_config_dict("config", config, flag_values=values)
    values(argv)
    assert given.value.rl.members_per_micro_batch == value


@pytest.mark.parametrize(("rule", "temperature"), [({"temperature": 0.5}, 0.5), ({"temperature": 0.0}, 1.0), ({}, 1.0)])
def test_the_learner_takes_what_the_sampler_records(rule, temperature, experiment, no_workers, tmp_path, monkeypatch):
    """Nothing of a run of 0 steps is refused at its end, and a rule may leave the temperature to its default."""
    made, learner, used = changed({"rule": ConfigDict(rule), "rl.steps": 0}), mock.Mock(), []
    monkeypatch.setattr(reinforce, "learner", learner)
    monkeypatch.setattr(machinery, "model_passes", lambda decoder, temperature, **options: used.append(temperature))
    reinforce.reinforce(machinery.assemble(made, experiment), tmp_path, mock.Mock(), PhaseTimer(), Interruption())
    assert learner.make_learner.called
    assert used == [temperature]
