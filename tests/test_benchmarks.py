"""Benchmarks count their work rightly, print what they say, and compare what was measured. No time is looked at."""

import json
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments.benchmarks import gradient_pass, growth, limits, machine, phases, rollout, shapes, train_step, work
from rlagents.learner import NonFiniteError
from rlagents.machinery import abstract_params

SIZES = {
    **{"layers": 2, "d": 16, "heads": 2, "kv-heads": 1, "ffn": 24, "vocab": 40},
    **{"prompts": 2, "group": 3, "prompt-len": 6, "gen": 5, "warmup": 1, "iters": 1},
}
TINY = [text for name, value in SIZES.items() for text in (f"--{name}", str(value))]


def tiny():
    return shapes.with_flags(shapes.arguments(None), TINY)


def test_matrices_are_counted_once_each():
    config = shapes.decoder_config(tiny())
    layers = abstract_params(config)["layers"]
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
    np.testing.assert_allclose(counted, 5 * flops, rtol=1e-12)


def test_work_of_decoding_is_that_of_a_loop_over_its_steps():
    config = shapes.decoder_config(tiny())
    prompts, group, prefix, first, last = 2, 3, 5, 1, 4
    entries = work.layer_parameters(config) + config.embed_dim * config.vocab_size
    kv = 4 * config.num_layers * 2 * config.num_kv_heads * config.head_dim
    flops = read = 0
    for token in range(first, last + 1):
        own = [*range(token + 1)]
        read += 4 * entries
        for _ in range(prompts):
            read += kv * prefix
            for _ in range(group):
                read += kv * len(own)
                flops += 2 * entries
                flops += config.num_layers * config.num_heads * 4 * config.head_dim * (prefix + len(own))
    counted = work.decode(config, prompts=prompts, group=group, prefix=prefix, first=first, last=last)
    np.testing.assert_allclose(counted, (flops, read), rtol=1e-12)


def test_work_of_a_rollout_is_its_prefixes_and_every_token_decoded():
    config = shapes.decoder_config(tiny())
    prompts, group, prefix, sampled = 2, 3, 5, 5
    decoding = work.decode(config, prompts=prompts, group=group, prefix=prefix, first=0, last=sampled - 1)
    flops, read = decoding.flops, decoding.bytes + 4 * work.layer_parameters(config)
    for _ in range(prompts):
        for position in range(prefix):
            flops += 2 * work.layer_parameters(config)
            flops += config.num_layers * config.num_heads * 4 * config.head_dim * (position + 1)
    counted = work.rollout(config, prompts=prompts, group=group, prefix=prefix, sampled=sampled)
    np.testing.assert_allclose(counted, (flops, read), rtol=1e-12)
    # The last token is sampled by no pass of its own: one fewer is one step fewer.
    fewer = work.rollout(config, prompts=prompts, group=group, prefix=prefix, sampled=sampled - 1)
    last = work.decode(config, prompts=prompts, group=group, prefix=prefix, first=sampled - 1, last=sampled - 1)
    np.testing.assert_allclose(np.subtract(counted, fewer), last, rtol=1e-12)


def test_one_process_samples_trains_and_prints_a_line(monkeypatch, capsys):
    seen, update = [], train_step.update

    def updated(learn, state, batch, facts):
        params = jax.tree.map(np.array, state.params)
        state, report = update(learn, state, batch, facts)
        seen.append((params, batch, facts, report))
        return state, report

    monkeypatch.setattr(train_step, "update", updated)
    monkeypatch.setattr(sys, "argv", ["train_step", *TINY])
    train_step.main()
    (line,) = capsys.readouterr().out.splitlines()
    line = json.loads(line)
    assert {"rollout_tok_s", "train_step_s", "max_rss_mb", "other_procs_cores"} <= set(line)
    assert (line["prompts"], line["group"], line["vocab"], line["framework"]) == (2, 3, 40, "rlagents")

    # Measured alone, the gradient is that of the step.
    *arguments, report = seen[-1]
    flags, watch = train_step.add_flags(shapes.arguments(None)).parse_args(TINY), shapes.Stopwatch()
    ((loss, _), gradient), figures = gradient_pass.timed_passes(flags, *arguments, watch)
    np.testing.assert_allclose(loss, report.loss, rtol=2e-5)
    norm = np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(gradient)))
    np.testing.assert_allclose(norm, report.gradient_norm, rtol=2e-5)
    assert norm > 0
    assert figures["temp_mb"] > 0
    batch, random = arguments[1], gradient_pass.random_batch(flags)
    assert jax.tree.map(np.shape, random) == jax.tree.map(np.shape, batch)


def test_decoding_and_a_step_are_compared_with_the_limits_of_the_machine(monkeypatch, capsys):
    def timed_steps(flags, training, batch, watch):
        assert jax.tree.map(np.shape, batch) == jax.tree.map(np.shape, gradient_pass.random_batch(flags))
        watch("update", lambda: 0)
        watch("update", lambda: 0)
        watch.cpu_seconds["reference"] = watch.cpu_seconds["update"]

    flags = tiny()
    rates = iter([machine.Machine(1e6, 3e6, 2e6), machine.Machine(2e6, 1e6, 4e6)])
    monkeypatch.setattr(machine, "measure", lambda: next(rates))
    known = {"rollout": 10.0, "first token": 4.0, "reference": 1.0, "update": 3.0}
    monkeypatch.setattr(shapes.Stopwatch, "median", lambda watch, name, warmup: known[name])
    monkeypatch.setattr(train_step, "timed_steps", timed_steps)
    monkeypatch.setattr(sys, "argv", ["limits", *TINY])
    limits.main()
    line = json.loads(capsys.readouterr().out)
    assert (line["matrix_gflops"], line["read_gb_s"], line["copy_gb_s"], line["decode_s"]) == (0.002, 0.003, 0.004, 6.0)
    config = shapes.decoder_config(flags)
    counted = work.decode(config, prompts=2, group=3, prefix=5, first=1, last=4)
    expected = {
        "decode_over_limit": 6 / max(counted.flops / 2e6, counted.bytes / 3e6),
        "train_step_share": train_step.counted_flops(flags) / 2e6 / 4,
        "decode_tok_s": 24 / 6,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(line[name], value, atol=1e-4)


LEAST = {
    **dict.fromkeys(("layers", "d", "heads", "kv-heads", "ffn", "prompts", "group", "prompt-len", "gen"), 1),
    **{"vocab": 2, "head-dim": 0, "train-micro": 0, "warmup": 1, "iters": 1, "beta": 0, "lr": 0, "block-steps": 1},
    **dict.fromkeys(("loss-chunk-tokens", "head-chunk-tokens", "layer-chunk-tokens"), 0),
    **{"attention-chunk-logits": 0, "attention-parts": 0, "activation-gigabytes": 0},
}


def test_peak_memory_is_of_the_measured_process_alone():
    """What a process held before it started another counts in that one's ``ru_maxrss``."""
    held = np.ones(2**26)  # 512 MB
    code = "from experiments.benchmarks.shapes import peak_megabytes; print(peak_megabytes())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(said) < 450 < shapes.peak_megabytes() - 50, len(held)


def test_what_cannot_be_measured_is_refused(capsys):
    parser = train_step.add_flags(rollout.add_flags(shapes.arguments(None)))
    refused = [([f"--{name}", str(least - 1)], f"--{name}: found '{least - 1}'") for name, least in LEAST.items()]
    refused += [([f"--{name}", value], f"--{name}: found") for name in ("lr", "beta") for value in ("nan", "inf", "x")]
    refused += [(["--temperature", value], "--temperature: found") for value in ("0", "-1", "nan", "inf")]
    refused += [
        (["--train-micro", "3"], "does not divide"),
        (["--warmup", "0"], "1 or more"),
        (["--gen", "2.5"], "a whole number"),
        (["--heads", "3"], "--heads 3 does not divide --d 16"),
        (["--kv-heads", "4"], "no multiple"),
        (["--d", "6"], "--head-dim"),
    ]
    for flags, said in refused:
        with pytest.raises(SystemExit):
            shapes.with_flags(parser, [*TINY, *flags])
        assert said in capsys.readouterr().err, flags
    least = [text for name, value in LEAST.items() if name not in ("d", "iters") for text in (f"--{name}", str(value))]
    assert shapes.with_flags(parser, [*least, "--d", "2"]).vocab == 2


def test_a_step_that_was_skipped_is_not_timed_as_a_good_one(monkeypatch):
    """The second of three: none after it would be seen by a look at the last, or at three in a row."""

    def training():
        return train_step.Training(SimpleNamespace(prepare=lambda *given: None), SimpleNamespace(params=None), {})

    reports = iter([0, 0, 0, 0, 1, 0])
    updated = (SimpleNamespace(nonfinite_in_a_row=number, step=1, loss_finite=False, loss=np.nan) for number in reports)
    monkeypatch.setattr(train_step, "update", lambda learn, state, batch, facts: (state, next(updated)))
    flags, watch = SimpleNamespace(warmup=1, iters=2), shapes.Stopwatch()
    train_step.timed_steps(flags, training(), None, watch)
    with pytest.raises(NonFiniteError, match="the loss was nan"):
        train_step.timed_steps(flags, training(), None, watch)


def test_without_a_reference_its_pass_is_no_work():
    with_reference, without = (
        train_step.counted_flops(shapes.with_flags(shapes.arguments(None), [*TINY, "--beta", beta]))
        for beta in ("0.1", "0")
    )
    np.testing.assert_allclose(without / with_reference, 3 / 4, rtol=1e-12)


def test_rates_are_of_the_bytes_that_pass(monkeypatch):
    # A product, sums of rows, a product with a vector, two copies; the better of each kind counts.
    seconds = iter([2.0, 8.0, 4.0, 16.0, 5.0])

    def best(function, arguments, repeats):
        function(*arguments)
        return next(seconds)

    monkeypatch.setattr(machine, "_best", best)
    found = machine.measure(size=8, megabytes=1)
    np.testing.assert_allclose(found, (2 * 8**3 / 2, 2**20 / 4, 2 * 2**20 / 5), rtol=1e-12)


def line_of(given):
    """As ``gradient_pass`` prints it, of a machine whose time, memory and compile time are known."""
    flags = train_step.add_flags(shapes.arguments(None)).parse_args(given)
    line = {name.replace("-", "_"): value for name, value in vars(flags).items()}
    flops = train_step.counted_flops(flags, passes_without_gradient=0)
    line |= {"flops": flops, "gradient_s": flops / 1e11, "max_rss_mb": 500, "other_procs_cores": 0.0}
    return line | {"temp_mb": growth.tokens(line) / 100, "trace_s": 1.0, "compile_s": 0.5 * flags.layers}


def test_a_cell_of_growth_that_fails_leaves_the_others_measured(monkeypatch, capsys):
    def measure(command, given):
        if given[given.index("--group", given.index("--group") + 1) + 1] == "4":
            raise RuntimeError("killed")
        return line_of(given)

    monkeypatch.setattr(growth, "measure", measure)
    monkeypatch.setattr(sys, "argv", ["growth", "--axis", "group", "--sizes", "group=2,4,8"])
    with pytest.raises(SystemExit) as ended:
        growth.main()
    printed = capsys.readouterr()
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in printed.out.split("\n\n")[0].splitlines()]
    assert [row[0] for row in rows] == ["group", "---", "2", "4", "8", "exponent", "should be"]
    assert {len(row) for row in rows} == {len(growth.COLUMNS) + 2}
    assert [row[-1] for row in rows[2:5]] == ["", "failed", ""]
    assert (printed.err, ended.value.code) == ("killed\n", 1)


def test_growth_is_measured_cell_by_cell_and_shown_beside_what_it_should_be(monkeypatch, capsys):
    run = []

    def measure(command, given):
        assert command == [sys.executable, "-m", "experiments.benchmarks.gradient_pass"]
        run.append(given)
        return line_of(given)

    monkeypatch.setattr(growth, "measure", measure)
    axes = ["--axis", "prefix", "depth", "--sizes", "prefix=64,256,1024", "--sizes", "depth=4,8"]
    monkeypatch.setattr(sys, "argv", ["growth", *axes, "--vocab", "4096"])
    growth.main()
    # One cell is the start of both axes.
    assert len(run) == 4
    assert all(given[given.index("--vocab") + 1] == "4096" for given in run)
    prefix, depth = (
        [[cell.strip() for cell in row.split("|")[1:-2]] for row in text.splitlines()]
        for text in capsys.readouterr().out.split("\n\n")[:2]
    )
    assert [row[0] for row in prefix] == ["prefix", "---", "64", "256", "1,024", "exponent", "should be"]
    column = {name: at for at, name in enumerate(prefix[0])}
    found, should_be = prefix[-2], prefix[-1]
    # Tokens: 64 + 4 * 256 and 1,024 + 4 * 256.
    assert found[column["temp, MB"]] == should_be[column["temp, MB"]] == f"{np.log(2048 / 1088) / np.log(16):.2f}"
    assert found[column["s"]] == should_be[column["s"]] == found[column["GFLOP"]]
    assert (found[column["s / TFLOP"]], should_be[column["s / TFLOP"]]) == ("0.00", "0.00")
    assert (depth[-2][column["compile, s"]], depth[-1][column["compile, s"]]) == ("1.00", "0.00")
    assert {row[column["s / TFLOP"]] for row in prefix[2:5]} == {"10"}


def test_sizes_of_an_axis_are_refused_where_they_say_nothing(monkeypatch, capsys):
    assert growth.sizes_given(["vocab=8,16", "group=3"]) == {"vocab": (8, 16), "group": (3,)}
    for given in ("width=8,16", "vocab", "vocab=16,8", "vocab=0,8", "vocab=8,8", "member=1,256", "vocab=1", "group=0"):
        with pytest.raises(ValueError, match=f"--sizes {given!r}: expected"):
            growth.sizes_given([given])
    with pytest.raises(ValueError, match="vocab has sizes already"):
        growth.sizes_given(["vocab=8,16", "vocab=8,32"])
    monkeypatch.setattr(growth, "measure", lambda command, given: pytest.fail("measured"))
    for given, said in (
        (["--sizes", "depth=4,8"], "depth is not measured"),
        (["--vocab", "4096"], "--vocab is what axis vocab varies"),
        (["--vocab=4096"], "--vocab is what axis vocab varies"),
        (["--voc", "4096"], "unrecognized arguments"),
    ):
        monkeypatch.setattr(sys, "argv", ["growth", "--axis", "vocab", *given])
        with pytest.raises(SystemExit):
            growth.main()
        assert said in capsys.readouterr().err


def write_steps(workdir, *steps):
    workdir.mkdir()
    (workdir / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))


def test_phases_of_two_runs_stand_side_by_side(monkeypatch, capsys, tmp_path):
    def step(update, rollout, **more):
        phases = {"seconds/update": update, "seconds/rollout": rollout}
        return {"step": 0, "seconds": update + rollout, "tokens_sampled": 10, **phases, **more}

    # The first steps compile; what is no step has no phases.
    slow = [step(9.0, 90.0), {"step": 0}, step(4.0, 8.0), step(2.0, 8.0, **{"seconds/log": 0.5}), step(3.0, 8.0)]
    write_steps(tmp_path / "slow", *slow)
    write_steps(tmp_path / "fast", step(9.0, 9.0), step(1.0, 2.0))
    runs = [f"{name}={tmp_path / name}" for name in ("slow", "fast")]
    monkeypatch.setattr(sys, "argv", ["phases", *runs])
    phases.main()
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| whole step, s | 11.00 | 3.00 | 0.27 |",
        "| rollout | 8.00 | 2.00 | 0.25 |",
        "| update | 3.00 | 1.00 | 0.33 |",
        "| log | 0.50 |  |  |",
        "| tokens sampled | 10 | 10 | 1.00 |",
    ]
    for given, said in (
        ([runs[0], "--skip", "4"], "expected more than 4"),
        (["no-such"], "expected NAME=WORKDIR"),
        (["=runs"], "expected NAME=WORKDIR"),
        (["a=no-such"], "no-such: no such folder"),
        ([f"a={tmp_path}"], "metrics.jsonl: no such file"),
        ([runs[0], runs[0]], "there is a run 'slow' already"),
        ([runs[0], "--skip", "-1"], "--skip -1: expected 0 or more"),
    ):
        monkeypatch.setattr(sys, "argv", ["phases", *given])
        with pytest.raises(SystemExit):
            phases.main()
        assert said in capsys.readouterr().err


def test_a_damaged_line_is_named_and_what_a_kill_left_is_left_out(capsys, tmp_path):
    file = tmp_path / "metrics.jsonl"
    good = '{"seconds": 2.0, "seconds/update": 1.0}'
    for damaged, said in (
        ('{"seconds": 1', "line 2: found no JSON"),
        ("", "line 2: found no JSON"),
        ("[1, 2]", "line 2: found '[1, 2]', expected an object"),
        ('{"seconds/update": NaN}', "line 2: seconds/update is nan, expected a finite number"),
        ('{"seconds/update": Infinity}', "line 2: seconds/update is inf"),
        ('{"seconds/update": "nan"}', "line 2: seconds/update is 'nan'"),
        ('{"tokens_sampled": -1}', "line 2: tokens_sampled is -1"),
    ):
        file.write_text(f"{good}\n{damaged}\n{good}\n")
        with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2") as refused:
            phases.read_steps(tmp_path, skip=0)
        assert said in str(refused.value)
    assert not capsys.readouterr().err
    (tmp_path / "metrics.0001.jsonl").write_text(f"{good}\n{good}\n{good}\n")  # an older file of the same run
    file.write_text(f"{good}\n")
    assert len(phases.read_steps(tmp_path, skip=0)) == 4
    (tmp_path / "metrics.0001.jsonl").unlink()
    file.write_text(f'{good}\n{good}\n{{"seconds": 1')
    assert len(phases.read_steps(tmp_path, skip=0)) == 2
    assert "line 3, the last, is damaged" in capsys.readouterr().err
