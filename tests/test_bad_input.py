"""What a user gets wrong is told in clear words, ends the program with 2, and costs nothing that was there."""

import json
import subprocess
import sys
from unittest import mock

import pytest

from rlagents import evaluate, reinforce, train
from rlagents.checkpoints import CheckpointError, RunRecord
from rlagents.config_defaults import complete
from rlagents.models.huggingface import save_pretrained
from rlagents.workdir import claim_workdir
from tests.models.tiny import LLAMA, random_params
from tests.programs import started
from tests.test_train import CONFIG_FILE, ROOT, small_config

FILE = """
import dataclasses
import jax.numpy as jnp
from experiments.quickstart import procedural
from rlagents.data.streams import shuffled
from rlagents.models.huggingface import load_pretrained
from rlagents.rollouts.chat import Chat, training_template
from rlagents.rollouts.conditions import reward_goal, stratified
from tests.test_train import small_config

def get_config():
    config = small_config()
    config.supervised.steps = 0
    config.compilation_cache = ""
    {changes}
    return config

def build(config):
    experiment = procedural.build(config)
    tokenizer = experiment.chat.tokenizer
    return dataclasses.replace(experiment, {replaced})
"""


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture
def workdir(tmp_path):
    """A run's folder, with something precious in it."""
    return tmp_path / "run"


def held(folder):
    """Everything in a folder, to the last byte."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refused(workdir, *options, program=train):
    """What a program that ends with 2 says; what was in its folder is as it was."""
    before = held(workdir)
    ended = started(program, *options, f"--workdir={workdir}")
    assert ended.code == 2, ended
    assert "Traceback" not in ended.err
    assert ended.err.startswith(f"rlagents.{program.__name__.rpartition('.')[2]}: ")
    assert {path: text for path, text in held(workdir).items() if path in before} == before
    return ended.err


def config_file(folder, replaced="", changes="pass"):
    file = folder / "experiment.py"
    file.write_text(FILE.format(replaced=replaced, changes=changes))
    return f"--config={file}"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--config.evaluation.num_tusks=3"], "no key evaluation.num_tusks; the keys of evaluation are every_steps,"),
        (["--config.evaluation.num_tusks=3"], "Did you mean evaluation.num_tasks?"),
        (["--config.step=3"], "the config has no key step; its keys are"),
        (["--config.rl.steps=many"], "rl.steps is 'many'; give a whole number (it is 36 in the file)"),
        (["--config.rl.steps", "many"], "rl.steps is 'many'; give a whole number"),
        (["--config.rl.stop_early=perhaps"], "rl.stop_early is 'perhaps'; give True or False"),
        (["--config.rule.temperature=hot"], "rule.temperature is 'hot'; give a number"),
        (["--config.limits.max_turn_tokens=-1"], "limits.max_turn_tokens is -1; give a whole number >= 1"),
        (["--config.limits.max_response_tokens=-5"], "limits.max_response_tokens is -5"),
        (["--config.rl.steps=-1"], "rl.steps is -1"),
        ([f"--config.rl.steps={10**20}"], f"rl.steps is {10**20}; give a whole number below 2**31."),
        ([f"--config.supervised.steps={2**31}"], f"supervised.steps is {2**31}; give a whole number below 2**31."),
        (
            [f"--config.rl.steps={2**30}", "--config.rl.epochs=3"],
            "rl.updates_per_batch = 3 updates: 3221225472 updates",
        ),
        (
            [
                "--config.mesh.fsdp=8",
                "--config.checkpoint.keep_best=1",
                "--config.evaluation.every_steps=1",
                "--config.checkpoint.best_metric=suces",
            ],
            "checkpoint.best_metric is 'suces', which an evaluation does not give; it gives success, tasks,",
        ),
        (
            [
                "--config.mesh.fsdp=8",
                "--config.checkpoint.keep_best=1",
                "--config.evaluation.every_steps=1",
                "--config.checkpoint.best_metric=success/level 9",
            ],
            "success/level 2, success/level 3, success/CATEGORY and named/FACT. Did you mean success/level 3?",
        ),
        (
            ["--config.evaluation.samples_per_task=200"],
            "evaluation.samples_per_task is 200, but sampler.num_rows is 128",
        ),
        (["--config.mesh.tensor=3"], "the mesh data=1 x fsdp=1 x tensor=3 takes 3 devices, but there are 8"),
        (["--config.seed=-1"], "seed is -1"),
        (["--nonsense=1"], "nonsense"),
        (["stray", "words"], "unknown arguments stray words; options begin with --"),
        (
            ["--config.mesh.fsdp=8", "--config.rl.learning_rate=-1"],
            "optimizer of build(config) has the learning rate -",
        ),
        (
            ["--config.mesh.fsdp=8", "--config.rl.learning_rate=nan"],
            "rl.learning_rate is nan; give a number.",
        ),
    ],
)
def test_options(options, said, workdir):
    assert said in refused(workdir, f"--config={CONFIG_FILE}", *options)
    assert not workdir.exists()


def test_all_problems_of_a_command_line_come_at_once(workdir):
    said = refused(
        workdir,
        f"--config={CONFIG_FILE}",
        "--config.rl.stepz=1",
        "--config.rl.epochs=often",
        "--config.seed=-1",
        "--config.sampler.decode_rows=500",
        "--config.mesh.fsdp=3",
        "--config.limits.max_turns=0",
        "--config.passes.attention_parts=-1",
        "--config.workers.max_retries=-1",
    )
    first, *lines = said.strip().splitlines()
    assert first == "rlagents.train: 8 problems:"
    for line, wanted in zip(
        sorted(lines),
        [
            "  - limits.max_turns is 0; give a whole number >= 1.",
            "  - passes.attention_parts is -1; give a whole number >= 0.",
            "  - rl.epochs is 'often'; give a whole number (it is 1 in the file).",
            "  - sampler.decode_rows=500 is more than num_rows=128; give at most 128.",
            "  - seed is -1; give a whole number in [0, 2**32).",
            "  - the config has no key rl.stepz;",
            "  - the mesh data=1 x fsdp=3 x tensor=1 takes 3 devices",
            "  - workers.max_retries is -1; give a whole number >= 0.",
        ],
        strict=True,
    ):
        assert line.startswith(wanted)
    assert not workdir.exists()


def test_all_problems_of_a_config_file_come_at_once(tmp_path, workdir):
    changes = "\n    ".join(
        [
            "config.unlock()",
            "del config.rl['max_draws']",
            "del config['mesh']",
            "config.workers.step_timeout = 1.0",
            "del config.rl['group_size']",
            "config.rl.group_size = 'two'",
            "config.sampler.max_member_tokens = -4",
        ]
    )
    said = refused(workdir, config_file(tmp_path, changes=changes))
    for wanted in (
        "5 problems:",
        "the config has no mesh; training needs seed, mesh,",
        "the config has no rl.max_draws; rl needs",
        "workers.step_timeout is no known key; workers takes num_workers, step_timeout_seconds,",
        "Did you mean step_timeout_seconds?",
        "rl.group_size is 'two'; give a whole number >= 1.",
        "sampler.max_member_tokens is -4; give a whole number >= 1.",
    ):
        assert wanted in said
    assert not workdir.exists()


def test_missing_and_truncated_weights(tmp_path, workdir):
    weights = f"make_params=lambda key, shardings: load_pretrained({str(tmp_path / 'weights')!r}, dtype=jnp.float32)[1]"
    file = config_file(tmp_path, weights)
    assert "weights/config.json is not there; found: no such folder" in refused(workdir, file)
    save_pretrained(tmp_path / "weights", LLAMA, random_params(LLAMA))
    stored = tmp_path / "weights" / "model.safetensors"
    whole = stored.read_bytes()
    for size in (len(whole) - 1, 20, 0):
        stored.write_bytes(whole[:size])
        said = refused(workdir, file)
        assert f"weights/model.safetensors ({size} bytes) is not a whole safetensors file" in said
        assert "Fetch it again" in said
        assert said.startswith("rlagents.train: make_params of build(config): ")
    stored.unlink()
    assert "has neither model.safetensors nor" in refused(workdir, file)
    assert not workdir.exists()


def test_a_tokenizer_without_a_chat_template(tmp_path, workdir):
    changed = "chat=Chat(tokenizer, training_template(tokenizer))"
    file = tmp_path / "experiment.py"
    file.write_text(
        FILE.format(replaced=changed, changes="pass").replace(
            "    return dataclasses", "    tokenizer.chat_template = None\n    return dataclasses"
        )
    )
    said = refused(workdir, f"--config={file}")
    assert "the tokenizer has no chat template; choose one of rlagents.rollouts.templates" in said
    assert not workdir.exists()


@pytest.mark.parametrize(
    ("replaced", "said"),
    [
        ("held_out=[]", "held_out of build(config) has no first task"),
        ("train_stream=lambda position: shuffled([], seed=0, position=position)", "the task set is empty"),
        ("member_messages=reward_goal(stratified(3))", "stratified(k=3) cannot draw 3 of a group of 2"),
    ],
)
def test_too_few_tasks_or_members(replaced, said, tmp_path, workdir):
    assert said in refused(workdir, config_file(tmp_path, replaced))
    assert not workdir.exists()


def test_a_size_that_is_none_is_told_once(workdir):
    said = refused(workdir, f"--config={CONFIG_FILE}", "--config.rl.prompts_per_step=-3", "--config.mesh.fsdp=8")
    assert said == "rlagents.train: rl.prompts_per_step is -3; give a whole number >= 1.\n"


def test_groups_of_one_where_the_method_compares_members(tmp_path, workdir):
    said = refused(workdir, config_file(tmp_path, changes="config.rl.group_size = 1"))
    assert "rl.group_size is 1, and the method (group_advantage," in said
    assert "give rl.group_size >= 2" in said


def test_more_keys_and_values_than_there_is_memory(tmp_path, workdir):
    changes = "config.sampler.num_rows = config.sampler.decode_rows = 2 * 10**9"
    said = refused(workdir, config_file(tmp_path, changes=changes))
    assert "sampler.num_rows is 2000000000, of 64 tokens each" in said
    assert "GB for each of 8 devices, and this machine has" in said


@pytest.mark.parametrize(
    ("build", "said"),
    [
        ("def build(config): return 7", "returned 7; expected an rlagents.experiment.Experiment"),
        ("def build(): return 7", "takes one argument, the config (too many positional arguments)"),
        ("", "has no build(config); add one"),
    ],
)
def test_what_builds_no_experiment(build, said, tmp_path, workdir):
    file = tmp_path / "mine.py"
    file.write_text(f"from experiments.quickstart.procedural import get_config\n{build}\n")
    assert said in refused(workdir, f"--config={file}", "--config.mesh.fsdp=8")
    assert not workdir.exists()


def test_a_stored_config_that_is_nested_without_end(tmp_path, workdir):
    file = tmp_path / "config.json"
    file.write_text("[" * 100_000)
    assert f"{file} is damaged (it is nested too deeply" in refused(workdir, f"--config={file}")


def test_a_folder_whose_config_does_not_say_whose_it_is(workdir):
    workdir.mkdir()
    stored = workdir / "config.json"
    for text, what in (("[" * 100_000, "it is nested too deeply"), ("\xff", "codec can't"), ("{", "Expecting")):
        stored.write_bytes(text.encode("latin-1"))
        said = refused(workdir, f"--config={CONFIG_FILE}", "--config.mesh.fsdp=8")
        assert f"{stored} is damaged and does not say whose folder it is (" in said
        assert what in said
    stored.unlink()
    stored.mkdir()
    assert "(it cannot be read: Is a directory)" in refused(workdir, f"--config={CONFIG_FILE}", "--config.mesh.fsdp=8")


def test_a_link_to_nowhere(tmp_path, workdir):
    workdir.symlink_to(tmp_path / "nowhere")
    said = refused(workdir, f"--config={CONFIG_FILE}", "--config.mesh.fsdp=8")
    assert f"{workdir} is a link to {tmp_path / 'nowhere'}, which is not there" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise RuntimeError('boom')", ", line 2: RuntimeError: boom"),
        ("def get_config(argument=None):\n    return 1 / 0", ", line 3: ZeroDivisionError: division by zero"),
        ("def get_config(argument=None):\n    raise ValueError('no such variant')", ", line 3: no such variant"),
        ("def get_config(argument=None):\n    return open('/nowhere/at/all')", ", line 3: FileNotFoundError: "),
        ("sys.exit(0)", ", line 2: it ends the program (exit code 0)"),
        ("def get_config(argument=None):\n    sys.exit()", ", line 3: it ends the program (exit code None)"),
        ("import nothing_there", ", line 2: ModuleNotFoundError: No module named 'nothing_there'"),
        ("def get_config(:", "is not Python: "),
        ("\0", "is not Python: "),
    ],
)
def test_a_config_file_that_raises_or_ends_the_program(text, said, tmp_path, workdir):
    file = tmp_path / "mine.py"
    file.write_text(f"import sys\n{text}\n")
    for options in ([f"--config={file}"], [f"--config={file}", "--config.rl.steps=3"], [f"--config={file}:argument"]):
        found = refused(workdir, *options)
        assert f"{file}" in found
        assert said in found
    assert not workdir.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--config is missing; --config takes a Python file"),
        ([f"--config={CONFIG_FILE}"], "--workdir is missing; give the folder of the run."),
        ([f"--config={CONFIG_FILE}", "--workdir="], "--workdir is empty; give the folder of the run."),
    ],
)
def test_an_option_that_is_missing(options, said, tmp_path):
    """In a process of its own: only there are the options required."""
    command = [sys.executable, "-m", "rlagents.train", *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stderr) == (2, f"rlagents.train: {said}{ended.stderr.partition(said)[2]}")
    assert "Traceback" not in ended.stderr


def test_who_asks_for_help_is_no_error_even_where_it_cannot_be_written():
    for option, wanted in (("--help", "Train a policy"), ("--config.help", "rl.steps")):
        command = [sys.executable, "-m", "rlagents.train", f"--config={CONFIG_FILE}", option]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        assert ended.returncode == 0
        assert wanted in ended.stdout
        assert not ended.stderr
    with open("/dev/full", "w") as full:
        assert subprocess.run(command, cwd=ROOT, stdout=full, timeout=300, check=False).returncode == 0


def test_no_prompt_fits_its_budget(tmp_path, workdir):
    for name, changes in (
        ("evaluation.limits", "config.limits.max_prompt_tokens = config.evaluation.limits.max_prompt_tokens = 4"),
        ("limits", "config.limits.max_prompt_tokens = 4"),
    ):
        said = refused(workdir, config_file(tmp_path, changes=changes))
        assert f"{name}.max_prompt_tokens is 4, and none of the first " in said
        assert "prompts fits: the shortest has " in said
    assert not workdir.exists()


def test_the_folder_of_another_experiment(tmp_path, workdir):
    file = config_file(tmp_path)
    config = small_config()
    complete(config)  # as the program does: what is left to its default differs in nothing
    claim_workdir(workdir, config)
    (workdir / "metrics.jsonl").write_text('{"step": 0}\n')
    said = refused(workdir, file)
    assert "holds a run of another config (compilation_cache is '', was" in said
    # One that differs in nothing but the file that builds it is another, too.
    stored = json.loads((workdir / "config.json").read_text())
    stored |= {"compilation_cache": "", "experiment": {"file": "elsewhere.py", "argument": None}}
    stored["supervised"]["steps"] = 0
    (workdir / "config.json").write_text(json.dumps(stored))
    said = refused(workdir, file)
    assert "experiment.file is " in said
    assert "was 'elsewhere.py'" in said


def test_a_stored_config_can_be_run_as_it_is(tmp_path, workdir):
    file = config_file(tmp_path, changes="config.rl.steps = 0")
    first = started(train, file, f"--workdir={workdir}", "--config.rl.over_sample=2.5", "--config.rule.top_k=7")
    assert first.code == 0
    stored = json.loads((workdir / "config.json").read_text())
    assert (stored["rl"]["over_sample"], stored["rule"]["top_k"]) == (2.5, 7)
    assert stored["experiment"] == {"file": str(tmp_path / "experiment.py"), "argument": None}
    again = started(train, f"--config={workdir / 'config.json'}", f"--workdir={tmp_path / 'again'}")
    assert again.code == 0
    assert json.loads((tmp_path / "again" / "config.json").read_text()) == stored
    # The run itself is gone on with.
    assert started(train, f"--config={workdir / 'config.json'}", f"--workdir={workdir}").code == 0
    changed = f"--config={workdir / 'config.json'}", "--config.rule.top_k=8"
    assert "rule.top_k is 8, was 7" in refused(workdir, *changed)
    assert "holds no checkpoint of step 3" in refused(workdir, changed[0], "--step=3", program=evaluate)


def test_a_damaged_rollout_in_a_checkpoint_is_one_that_cannot_be_gone_on_from(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be gone on from: the rollout that was sampled ahead is damaged"):
        reinforce._pending(RunRecord({}, pending={"groups": 7}), mock.Mock(directory=tmp_path))
    assert reinforce._pending(RunRecord({}), mock.Mock(directory=tmp_path)) is None
