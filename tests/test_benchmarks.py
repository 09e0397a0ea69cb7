"""Benchmarks count their work rightly, print what they say, and compare what was measured. No time is looked at."""

import json
import sys

import jax
import numpy as np
import pytest

from experiments.benchmarks import compare, machine, shapes, train_step, work
from rlagents import models

TINY = [
    "--layers",
    "2",
    "--d",
    "16",
    "--heads",
    "2",
    "--kv-heads",
    "1",
    "--ffn",
    "24",
    "--vocab",
    "40",
    "--prompts",
    "2",
    "--group",
    "3",
    "--prompt-len",
    "6",
    "--gen",
    "5",
    "--warmup",
    "1",
    "--iters",
    "1",
]


def tiny():
    return shapes.with_flags(shapes.arguments(None), TINY)


def test_matrices_are_counted_once_each():
    config = shapes.decoder_config(tiny())
    layers = models.init_params(config, jax.random.key(0))["layers"]
    matrices = [leaf.size for leaf in jax.tree.leaves({**layers["mlp"], **layers["attention"]}) if leaf.ndim > 2]
    biases = config.num_layers * config.head_dim * (config.num_heads + 2 * config.num_kv_heads)
    assert work.layer_parameters(config) == sum(matrices) - biases


def test_work_of_a_step_is_that_of_a_loop_over_its_tokens():
    config = shapes.decoder_config(tiny())
    prompts, group, prefix, own, sampled = 2, 3, 5, 6, 5
    flops = 0.0
    for _ in range(prompts):
        members = [(at, False) for at in range(prefix)]
        for _ in range(group):
            members += [(prefix + at, at < sampled) for at in range(own)]
        for position, predicts in members:
            flops += 2 * work.layer_parameters(config)
            flops += config.num_layers * config.num_heads * 4 * config.head_dim * (position + 1)
            flops += 2 * config.embed_dim * config.vocab_size * predicts
    counted = work.train_step(
        config, prompts=prompts, group=group, prefix=prefix, own=own, sampled=sampled, passes_without_gradient=2
    )
    np.testing.assert_allclose(counted.flops, 5 * flops, rtol=1e-12)


def test_one_process_samples_trains_and_prints_a_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train_step", *TINY])
    train_step.main()
    (line,) = capsys.readouterr().out.splitlines()
    line = json.loads(line)
    assert {"rollout_tok_s", "train_step_s", "max_rss_mb", "other_procs_cores"} <= set(line)
    assert (line["prompts"], line["group"], line["vocab"], line["framework"]) == (2, 3, 40, "rlagents")


def test_what_cannot_be_measured_is_refused(capsys):
    for flags, said in ((["--train-micro", "3"], "does not divide"), (["--warmup", "0"], "1 or more")):
        with pytest.raises(SystemExit):
            shapes.with_flags(shapes.arguments(None), [*TINY, *flags])
        assert said in capsys.readouterr().err


def test_ours_is_compared_with_the_better_peer():
    def line(tokens, seconds, megabytes, busy=0.0):
        return {
            "rollout_tok_s": tokens,
            "train_step_s": seconds,
            "max_rss_mb": megabytes,
            "other_procs_cores": busy,
        }

    lines = {"rlagents": line(300.0, 1.0, 30), "one": line(100.0, 4.0, 90, busy=0.5), "two": line(200.0, 5.0, 60)}
    rows = compare.report("tiny", TINY, lines, machine.Machine(1e9, 1e9))
    assert [row for row in rows if "ratio" in row] == ["| tiny | ratio | 1.50x | 0.25x | 0.50x | | |"]
    assert [row.split(" | ")[1] for row in rows if row.endswith("busy |")] == ["one"]


def test_a_peer_that_fails_says_why():
    with pytest.raises(RuntimeError, match=r"exited 3: .*no such shape"):
        compare.measure([sys.executable, "-c", "import sys; print('no such shape', file=sys.stderr); sys.exit(3)"], [])
