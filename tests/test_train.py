"""The programs, in small: what a run leaves behind, that a resumed run is the run, and what is refused."""

import collections
import contextlib
import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.quickstart import procedural, summarize
from rlagents import evaluate, learner, step_log, train
from rlagents.checkpoints import Checkpoints
from rlagents.compilation import planned_programs, programs_kept
from rlagents.machinery import Machinery, assemble
from rlagents.methods import (
    chain,
    clipped_surrogate,
    group_advantage,
    method,
    predicates,
    token_mean,
    truncated_token_weights,
)
from rlagents.metrics import read_lines, read_metrics
from rlagents.metrics.names import unknown
from rlagents.rollouts.conditions import HIGH, fixed, reward_goal, stratified
from rlagents.rollouts.informative import anything, informative
from rlagents.timing import PhaseTimer
from rlagents.trajectory_lines import trajectories
from rlagents.types import Kind
from rlagents.workdir import claim_workdir
from tests.rewarding import RewardedByLength
from tests.sampling.test_compilations import compilations

ROOT = Path(__file__).resolve().parents[1]
CONFIG_FILE = "experiments/quickstart/procedural.py"
LINES = ("metrics.jsonl", "evaluations.jsonl", "warm_up.jsonl")
NOT_UNIFORM = informative(predicates.uniform_groups)


def small_config():
    config = procedural.get_config()
    config.train_levels = config.held_out_levels = (1,)
    config.model.update(
        {"embed_dim": 32, "mlp_dim": 64, "num_layers": 1, "num_heads": 2, "num_kv_heads": 2, "head_dim": 16}
    )
    config.mesh.data = 8
    for limits in (config.limits, config.evaluation.limits):
        limits.update({"max_turns": 4, "max_turn_tokens": 8, "max_response_tokens": 63})
    config.sampler.update(
        {
            "num_groups": 8,
            "num_rows": 16,
            "decode_rows": 16,
            "max_member_tokens": 64,
            "extend_rows": 16,
            "prefill_groups": 8,
        }
    )
    config.supervised.update(
        {
            "steps": 4,
            "complete_steps": 2,
            "traces": 40,
            "prompts_per_step": 8,
            "prompts_per_micro_batch": 8,
            "batches_per_window": 2,
        }
    )
    config.trace_buckets.member_buckets = (64,)
    config.rl.update({"steps": 4, "prompts_per_step": 8, "group_size": 2, "prompts_per_micro_batch": 8, "epochs": 2})
    config.rl.update({"over_sample": 1.5, "max_draws": 2})
    config.buckets.member_buckets = (64,)
    config.evaluation.update({"num_tasks": 8, "samples_per_task": 2})
    config.checkpoint.every_steps = 2
    return config


@contextlib.contextmanager
def running(config, *, informative=NOT_UNIFORM, **changes):
    experiment = dataclasses.replace(procedural.build(config), informative=informative, **changes)
    settings = {f.name: getattr(experiment.environment, f.name) for f in dataclasses.fields(experiment.environment)}
    rewarded = RewardedByLength(**settings)
    machinery = assemble(config, dataclasses.replace(experiment, environment=rewarded))
    try:
        yield machinery
    finally:
        machinery.close()


def run(config, workdir, **changes):
    claim_workdir(workdir, config)
    with running(config, **changes) as machinery:
        train.train(machinery, workdir, PhaseTimer())


def final_params(config, workdir):
    with running(config) as machinery:
        params, step = evaluate.trained_params(machinery, workdir, None)
    return jax.device_get(params), step


def same_lines(file, other):
    timed = ("seconds", "tokens_per_second")
    rows, others = (
        [{key: value for key, value in row.items() if not key.startswith(timed)} for row in read_metrics(where)]
        for where in (file, other)
    )
    assert rows == others


class Stop(Exception):  # noqa: N818  not an error: the run is taken away
    """The machine is taken away."""


@pytest.fixture(scope="module", autouse=True)
def _programs_kept(tmp_path_factory):
    """Every run makes functions of its own, which are the same programs."""
    with programs_kept(tmp_path_factory.mktemp("programs")):
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run from beginning to end; which programs had been compiled as each GRPO step began, and who waited when."""
    workdir = tmp_path_factory.mktemp("whole") / "run"
    with compilations() as compiled, pytest.MonkeyPatch.context() as patch:
        counts, events = [], []

        def told(owner, name, event):
            original = getattr(owner, name)

            def function(*arguments, **options):
                event()
                return original(*arguments, **options)

            patch.setattr(owner, name, function)

        told(Machinery, "roll_out", lambda: (counts.append(len(compiled)), events.append("rollout")))
        told(jax, "block_until_ready", lambda: events.append("wait"))
        told(learner, "check_finite", lambda: events.append("read"))
        run(small_config(), workdir)
        counts.append(len(compiled))
    (workdir / "compiled.json").write_text(json.dumps({"counts": counts, "names": compiled, "events": events}))
    return workdir


def test_nothing_compiles_after_the_first_step(whole):
    """Sampler, passes, credit, update, publication: whatever the lengths, one program each."""
    before_first, after_first, *later = json.loads((whole / "compiled.json").read_text())["counts"]
    assert before_first < after_first
    assert set(later[:-1]) == {after_first}


def test_the_programs_are_those_that_were_planned(whole):
    found = collections.Counter(json.loads((whole / "compiled.json").read_text())["names"])
    planned = planned_programs(small_config(), max_prefix_tokens=112)
    assert planned["prepare"] == found["jit(prepare)"]
    assert planned["credit"] == found["jit(assign)"]
    assert planned["scores"] == found["jit(scores)"]
    assert planned["warm-up step"] + planned["step"] == found["jit(step)"]
    for name, function in (("prefill", "prefill_prefixes"), ("extend", "extend_rows"), ("decode", "decode_block")):
        # Untrained weights may never come to the longest conversations.
        assert found[f"jit({function})"] <= planned[name]
    assert min(found["jit(prefill_prefixes)"], found["jit(decode_block)"]) > 0


def test_the_host_waits_once_a_step_and_reads_what_was_learned_a_step_late(whole):
    events = json.loads((whole / "compiled.json").read_text())["events"]
    before, *steps = "".join({"rollout": "|", "wait": "w", "read": "r"}[event] for event in events).split("|")
    assert before
    # Two updates a step; each step may draw twice; every second step has a checkpoint behind it.
    steps = [step for step in steps if step]
    assert len(steps) == 4
    assert steps[0] == "w"
    assert steps[1].startswith("wrrrr")
    assert steps[2] == "w"


def test_the_learner_s_log_probs_are_those_that_the_sampler_recorded(whole):
    """In the first update of each step, so the weights that sampled are those that learn, and so is the temperature."""
    config = small_config()
    config.rl.update({"epochs": 1, "over_sample": 1.0, "max_draws": 1, "pack_micro_batches": True})
    with tempfile.TemporaryDirectory() as folder:
        run(config, Path(folder) / "run", informative=anything)
        rows = read_metrics(Path(folder) / "run" / "metrics.jsonl")
    assert [row["updates_applied"] for row in rows] == [1, 1, 1, 1]
    assert max(row["rollout_gap"] for row in rows) < 1e-4
    assert all(row["padding_fraction_packed"] <= row["padding_fraction"] for row in rows)
    # Every group of a draw is taken as it comes.
    drawn = [[row[f"rollout/{name}"] for name in ("draws", "groups_sampled", "groups_kept")] for row in rows]
    assert drawn == [[1, 8, 8]] * 4


def test_a_run_leaves_a_line_a_step_evaluations_conversations_and_a_summary(whole, capsys):
    steps = read_metrics(whole / "metrics.jsonl")
    assert [row["step"] for row in steps] == [0, 1, 2, 3]
    wanted = {"reward", "loss", "gradient_norm", "tokens_per_second", "seconds/rollout", "seconds/update"}
    assert wanted <= steps[0].keys()
    assert any(row["gradient_norm"] > 0 for row in steps)
    assert all(unknown(name, set().union(*read_metrics(whole / name))) == [] for name in LINES)
    # The second update of a step sees a policy that the first has moved.
    assert all(1 < row["policy_ratio_max"] < 2 for row in steps if row["gradient_norm"] > 0)
    assert all(0 < row["rollout_kl"] < 0.1 for row in steps)
    # A draw's groups are sampled up to the last that is needed.
    stopped = [row.get("rollout/groups_stopped", 0) for row in steps]
    assert any(stopped)
    for row, number in zip(steps, stopped, strict=True):
        assert row["rollout/groups_sampled"] + number == 12 * row["rollout/draws"]
    assert all(row["rollout/groups_kept"] == 8 for row in steps)
    assert sum(row.get("rollout/uninformative/uniform_groups", 0) for row in steps) > 0
    assert [row["step"] for row in read_metrics(whole / "warm_up.jsonl")] == [0, 1, 2, 3]
    evaluations = read_metrics(whole / "evaluations.jsonl")
    assert [row["step"] for row in evaluations] == [0, 4]
    # The two evaluations, the warm-up and the steps are all of the run but its start.
    timed = [row["seconds"] for row in evaluations + read_metrics(whole / "warm_up.jsonl") + steps]
    assert min(timed) > 0
    assert sum(timed) < evaluations[-1]["seconds_since_start"]
    held_out = [(line["step"], len(line["members"])) for line in read_lines(whole / "held_out.jsonl")]
    assert held_out == [(0, 2)] * 8 + [(4, 2)] * 8
    summary = summarize.summarize(whole)
    assert json.loads((whole / "summary.json").read_text()) == summary
    assert summary.keys() == {"success_before", "success_after", "seconds", "steps", "seed"}
    assert (whole / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert "one held-out conversation" in capsys.readouterr().out


@pytest.mark.parametrize("phase", ["warm-up", "rl"])
def test_a_run_taken_away_and_started_again_is_the_run_never_interrupted(whole, phase, tmp_path, monkeypatch):
    config, workdir = small_config(), tmp_path / "run"
    with monkeypatch.context() as patch:
        name = "report_values" if phase == "warm-up" else "mean_values"
        owner = learner if phase == "warm-up" else step_log
        original, calls = getattr(owner, name), []

        def give_up(*arguments):
            calls.append(arguments)
            if len(calls) == 4:
                raise Stop
            return original(*arguments)

        patch.setattr(owner, name, give_up)
        with pytest.raises(Stop):
            run(config, workdir)
    with Checkpoints(workdir / ("warm_up" if phase == "warm-up" else "checkpoints")) as checkpoints:
        worked = checkpoints.record().run["elapsed_seconds"]
    with monkeypatch.context() as patch:
        resumed = []
        patch.setattr(PhaseTimer, "resume", lambda timer, seconds: resumed.append(seconds))
        run(config, workdir)
    assert resumed[-1] == worked > 0
    params, step = final_params(config, workdir)
    wanted, _ = final_params(config, whole)
    assert step == 4
    jax.tree.map(np.testing.assert_array_equal, params, wanted)
    for name in ("warm_up.jsonl", "metrics.jsonl", "evaluations.jsonl"):
        same_lines(workdir / name, whole / name)


CORRECTED = method(
    chain(group_advantage(ddof=0, epsilon=1e-6), truncated_token_weights(2.0), clipped_surrogate(0.2, 0.2)),
    token_mean(),
)


def ahead_config():
    config = small_config()
    config.supervised.steps = 0
    config.rl.update({"rollouts_ahead": 1, "epochs": 1, "learning_rate": 3e-3, "warm_up_updates": 1})
    config.evaluation.update({"every_steps": 2, "num_tasks": 4, "samples_per_task": 1})
    return config


def versions_of(file, step):
    """All versions that sampled a file's conversations of ``step``."""
    members = [member for line in read_lines(file) if line["step"] == step for member in trajectories(line)]
    assert all(len(member["weight_versions"]) == len(member["stop_reasons"]) > 0 for member in members)
    return {version for member in members for version in member["weight_versions"]}


def test_rollouts_sampled_ahead_are_one_version_behind_and_a_resumed_run_is_the_run(tmp_path, monkeypatch):
    whole, workdir = tmp_path / "whole", tmp_path / "run"
    run(ahead_config(), whole, method=CORRECTED)
    rows = read_metrics(whole / "metrics.jsonl")
    assert [row["rollout/versions_behind"] for row in rows] == [0, 1, 1, 1]
    assert [versions_of(whole / "trajectories.jsonl", step) for step in range(4)] == [{0}, {0}, {1}, {2}]
    # Evaluations are of the weights that they name.
    held_out = [versions_of(whole / "held_out.jsonl", step) for step in (0, 2, 4)]
    assert held_out == [{0}, {2}, {4}]
    assert ["seconds/rollout_ahead" in row for row in rows] == [True, True, True, False]
    # The weights of the first step agree but for rounding, those of later steps are others.
    gaps = [row["rollout_gap"] for row in rows]
    assert gaps[0] < 1e-4
    assert min(gaps[1:]) > 1e-3
    assert abs(rows[0]["rollout_weight"] - 1) < 1e-4

    with monkeypatch.context() as patch:
        put, steps = step_log.StepLog.put, []

        def give_up(log, line):
            if line.step == 3:
                raise Stop
            put(log, line)

        patch.setattr(step_log.StepLog, "put", give_up)
        with pytest.raises(Stop):
            run(ahead_config(), workdir, method=CORRECTED)
    with monkeypatch.context() as patch:
        original = Machinery.roll_out
        patch.setattr(Machinery, "roll_out", lambda *arguments: (steps.append(arguments[-1]), original(*arguments))[1])
        run(ahead_config(), workdir, method=CORRECTED)
    assert steps == [3]  # what step 2 learns from lay in the checkpoint
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        same_lines(workdir / name, whole / name)
    with running(ahead_config(), method=CORRECTED) as machinery:
        resumed, wanted = (evaluate.trained_params(machinery, where, 4)[0] for where in (workdir, whole))
    jax.tree.map(np.testing.assert_array_equal, resumed, wanted)


def test_members_are_told_goals_and_forced_tokens_in_training_and_evaluation():
    config = small_config()
    # The goal is no word of the tokenizer's: it takes many tokens.
    for limits in (config.limits, config.evaluation.limits):
        limits.max_prompt_tokens = 160
    config.buckets.update({"prefix_buckets": (160,), "member_buckets": (96,)})
    config.sampler.max_member_tokens = 96
    changes = {
        "member_messages": reward_goal(stratified(1)),
        "evaluation_messages": reward_goal(fixed(HIGH)),
        "forced_prefix": "done",
    }
    with running(config, **changes) as machinery:
        sampler = machinery.make_sampler(machinery.make_params())
        stream = machinery.experiment.train_stream(0)
        first, position = machinery.roll_out(sampler, stream, 0), stream.position
        second = machinery.roll_out(sampler, stream, 1)
        evaluated = machinery.evaluate(sampler).groups
        again = machinery.roll_out(sampler, machinery.experiment.train_stream(position), 1)
    assert position == 12 * first.counts["draws"]
    for one, other in zip(again.groups, second.groups, strict=True):
        for member, same in zip(one, other, strict=True):
            assert member.log_probs == same.log_probs
            assert dataclasses.replace(member, log_probs=same.log_probs) == same
    for groups, conditions in ((first.groups, [0, 1]), (second.groups, [0, 1]), (evaluated, [1, 1])):
        assert len(groups) == 8
        for group in groups:
            assert sorted(member.condition for member in group) == conditions
            for member in group:
                asked = next(message["content"] for message in member.messages if message["role"] == "user")
                assert asked.endswith(f"\n[Reward Goal: <|{['low', 'high'][member.condition]}_reward|>]")
                forced = machinery.forced_prefix()
                assert member.kinds.count(Kind.FORCED) == len(forced) * member.num_turns > 0


def test_a_finished_run_says_so_and_is_left_alone(whole, capsys):
    before = (whole / "metrics.jsonl").read_bytes()
    run(small_config(), whole)
    assert "nothing is left to do" in capsys.readouterr().out
    assert (whole / "metrics.jsonl").read_bytes() == before


def test_evaluation_finds_the_weights_before_and_after(whole):
    config = small_config()
    after, _ = final_params(config, whole)
    with running(config) as machinery:
        before, step = evaluate.trained_params(machinery, whole, 0)
        assert step == 0
        different = jax.tree.map(lambda a, b: bool(np.any(np.asarray(a) != b)), before, after)
        assert any(jax.tree.leaves(different))
        with pytest.raises(ValueError, match="no checkpoint of step 3"):
            evaluate.trained_params(machinery, whole, 3)
        with pytest.raises(ValueError, match="is no folder"):
            evaluate.trained_params(machinery, whole / "nowhere", None)


def test_evaluation_has_its_own_limits():
    config = small_config()
    config.evaluation.limits.max_turn_tokens = 4
    with running(config) as machinery:
        sampler = machinery.make_sampler(machinery.make_params())
        evaluated = machinery.evaluate(sampler).groups
        sampled = machinery.roll_out(sampler, machinery.experiment.train_stream(0), 0).groups
    longest = [
        max(trajectory.kinds.count(Kind.MODEL) for group in groups for trajectory in group)
        for groups in (evaluated, sampled)
    ]
    # Untrained weights hardly ever end a turn before its limit.
    assert longest == [4, 8]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--config.mesh.tensor=3"], "mesh"),
        (["--config.evaluation.num_tusks=3"], "num_tusks"),
        (["--config.rl.steps=many"], "many"),
        (["--config=experiments/rc_grpo/bfcl.py:giant"], "unknown variant 'giant'; there are smollm2-135m"),
        (["--nonsense=1"], "nonsense"),
        (["--config=experiments/rc_grpo/bfcl.py:smollm2-135m", "--config.mesh.tensor=3"], "mesh"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(arguments, said, tmp_path):
    workdir = tmp_path / "run"
    command = [sys.executable, "-m", "rlagents.train", f"--config={CONFIG_FILE}", f"--workdir={workdir}", *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not (workdir / "metrics.jsonl").exists()
