"""Libraries are compared on what was asked of all; one that fails says so and loses nobody else's figures."""

import os
import shlex
import sys
import time

import numpy as np
import pytest

from experiments.benchmarks import compare, machine, rollout, shapes, train_step

SHAPE = ["--prompts", "2", "--group", "3", "--gen", "5"]
RATES = machine.Machine(1e12, 1e12, 1e12)


def line(tokens=300.0, seconds=1.0, megabytes=30, busy=0.0, **more):
    return {
        "rollout_tok_s": tokens,
        "train_step_s": seconds,
        "max_rss_mb": megabytes,
        "other_procs_cores": busy,
        **more,
    }


def python(program):
    return [sys.executable, "-S", "-c", program]


def test_ours_is_compared_with_the_better_peer():
    lines = {"rlagents": line(), "one": line(100.0, 4.0, 90, busy=0.5), "two": line(200.0, 5.0, 60)}
    rows, failed = compare.report("tiny", SHAPE, lines, RATES)
    assert rows[-1] == "| tiny | ratio | 1.50x | 0.25x | 0.50x | | | | busy |"
    assert [row.split(" | ")[1] for row in rows if row.endswith("busy |")] == ["one", "ratio"]
    assert not failed
    lines["one"] = line(100.0, 4.0, 90)
    assert not any("busy" in row for row in compare.report("tiny", SHAPE, lines, RATES)[0])
    lines["two"] = RuntimeError("it broke")
    rows, failed = compare.report("tiny", SHAPE, lines, RATES)
    assert rows[-2:] == [
        "| tiny | two | failed | | | | | | |",
        "| tiny | ratio | 3.00x | 0.25x | 0.33x | | | | without two |",
    ]
    assert failed == {"two": "it broke"}


def run_main(monkeypatch, capsys, given, lines):
    """``lines`` by name, in the order of the commands; rows and what stderr says."""
    asked, left = [], iter(lines)

    def measure(command, flags, *, timeout_seconds):
        asked.append((command, flags, timeout_seconds))
        found = next(left)
        if isinstance(found, Exception):
            raise found
        return found

    rates = iter([machine.Machine(1e9, 5e9, 1e9), machine.Machine(2e9, 1e9, 1e9)])
    monkeypatch.setattr(compare, "measure", measure)
    monkeypatch.setattr(compare, "machine_rates", lambda: next(rates))
    monkeypatch.setattr(sys, "argv", ["compare", "--cell", "short", *given])
    try:
        compare.main()
        status = 0
    except SystemExit as ended:
        status = ended.code
    captured = capsys.readouterr()
    return asked, status, captured.out.splitlines(), captured.err


def test_shares_are_of_the_flags_that_ran_at_the_best_rates(monkeypatch, capsys):
    given = [*SHAPE, "--vocab", "64", "--d", "16"]
    asked, status, rows, _ = run_main(monkeypatch, capsys, given, [line(20.0, 0.5, prompts=2, vocab=64)])
    assert asked == [([sys.executable, "-m", "experiments.benchmarks.train_step"], given, 3600.0)]
    shape, best = shapes.with_flags(shapes.arguments(None), given), machine.Machine(2e9, 5e9, 1e9)
    shares = train_step.matrix_share(shape, 0.5, best), *rollout.limit_shares(shape, 2 * 3 * 5 / 20.0, best)
    assert status == 0
    assert rows[2] == "| short | rlagents | 20 | 0.50 | 30 | " + " | ".join(f"{share:.0%}" for share in shares) + " | |"
    assert len({f"{share:.0%}" for share in shares}) == 3
    assert rows[-1] == "matrix product 2 GFLOP/s, reading 5.0 GB/s, copying 1.0 GB/s"


def test_a_peer_that_fails_loses_nobody_elses_figures(monkeypatch, capsys):
    given = [*SHAPE, "--d", "16", "--vocab", "64", "--peer", "bad=one", "--peer", "good=two"]
    found = [line(20.0, 1.0), RuntimeError("no memory"), line(10.0, 2.0)]
    asked, status, rows, said = run_main(monkeypatch, capsys, [*given, "--timeout-seconds", "9"], found)
    assert [(command[0], timeout) for command, _, timeout in asked[1:]] == [("one", 9.0), ("two", 9.0)]
    assert [row.split(" | ")[1:3] for row in rows[2:6]] == [
        ["rlagents", "20"],
        ["bad", "failed"],
        ["good", "10"],
        ["ratio", "2.00x"],
    ]
    assert said == "short, bad: no memory\n"
    assert status == 1


def test_limits_count_the_work_of_the_shape():
    shape = shapes.with_flags(shapes.arguments(None), SHAPE)
    slow, fast = rollout.limit_shares(shape, 2.0, RATES), rollout.limit_shares(shape, 1.0, RATES)
    np.testing.assert_allclose(fast, np.multiply(slow, 2), rtol=1e-12)
    assert np.all(np.greater(slow, 0))


def test_a_line_of_another_shape_is_refused():
    flags = [*SHAPE, "--d", "64", "--train-micro", "1"]
    shape = shapes.with_flags(shapes.arguments(None), flags)
    compare.check(line(**{**vars(shape), "warmup": 9, "iters": 9}), shape)
    compare.check(line(head_dim=16, train_micro=1, prompts=2), shape)
    compare.check(line(train_micro=2, head_dim=0), compare.parse_shape(SHAPE))
    compare.check(line(train_micro=0, prompts=2, head_dim=64), compare.parse_shape(SHAPE))
    for name, value in vars(shape).items():
        if name not in ("warmup", "iters"):
            other = f"not {value}" if isinstance(value, str) else 10 + value
            with pytest.raises(ValueError, match=rf"measured {name} {other!r}, but .* was asked"):
                compare.check(line(**{name: other}), shape)


def test_more_than_the_machine_can_do_is_refused():
    shape = compare.parse_shape(SHAPE)
    limit = train_step.matrix_share(shape, 1.0, RATES)
    tokens = 2 * 3 * 5 / rollout.limit_shares(shape, 1.0, RATES)[0]
    assert compare.row("tiny", "it", line(0.999 * tokens, 1.001 * limit), shape, RATES)
    for found in (line(1.0, 0.9 * limit), line(1.1 * tokens, 1e3)):
        rows, failed = compare.report("tiny", SHAPE, {"it": found}, RATES)
        assert "11" in failed["it"]
        assert "of the float32 matrix rate, expected 100% at most" in failed["it"]
        assert rows == ["| tiny | it | failed | | | | | | |"]


def test_what_is_no_figure_is_refused():
    shape = compare.parse_shape(SHAPE)
    for name in ("rollout_tok_s", "train_step_s", "max_rss_mb", "other_procs_cores"):
        for value in (float("nan"), float("inf"), "3", None, True, *((0, -1) if name != "other_procs_cores" else ())):
            with pytest.raises(ValueError, match=f"found {name} is {value!r}, expected a finite number"):
                compare.check({**line(), name: value}, shape)
        with pytest.raises(ValueError, match=f"found no {name}, expected"):
            compare.check({key: value for key, value in line().items() if key != name}, shape)
    compare.check(line(busy=-0.001), shape)


def test_a_command_that_fails_says_why():
    for command, said in (
        (
            python("import sys; print('{}'); print('no such shape', file=sys.stderr); sys.exit(3)"),
            r"exited 3, .*no such shape",
        ),
        (python("print('no figures')"), r"printed no line of JSON; stdout ended 'no figures'; stderr ended ''"),
        (python("print('{half')"), r"printed no line of JSON; stdout ended '{half'"),
        (["no-such-command-anywhere"], r"'no-such-command-anywhere' cannot be started: No such file"),
    ):
        with pytest.raises(RuntimeError, match=said) as refused:
            compare.measure(command, [])
        assert "\n" not in str(refused.value)
    assert compare.measure(python("import sys; print('{\"a\": ' + sys.argv[1] + '}\\nend')"), ["3"]) == {"a": 3}


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    child, file = shlex.join(python("import time; time.sleep(60)")), tmp_path / "child"
    with pytest.raises(RuntimeError, match=r"still ran after 1 s .*raise --timeout-seconds; stdout ended 'begun'"):
        compare.measure(["sh", "-c", f"{child} & echo $! > {file}; echo begun; wait"], [], timeout_seconds=1)
    started = int(file.read_text())
    for _ in range(100):
        try:
            with open(f"/proc/{started}/stat") as stat:
                if stat.read().split()[2] == "Z":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.05)
    os.kill(started, 9)
    pytest.fail("what the command had started still runs")


def test_peers_have_a_name_of_their_own_and_a_command():
    assert compare.read_peers(["a=run 'it all'", "b=x=1"]) == {"a": ["run", "it all"], "b": ["x=1"]}
    for given, said in (
        (["rlagents=run"], "taken"),
        (["ratio=run"], "taken"),
        (["a=run", "a=other"], "taken"),
        (["=run"], "expected NAME=COMMAND"),
        (["a="], "expected NAME=COMMAND"),
        (["a"], "expected NAME=COMMAND"),
        (["a|b=run"], "expected NAME=COMMAND"),
        (["a=run 'it"], r"No closing quotation; close what"),
    ):
        with pytest.raises(ValueError, match=said):
            compare.read_peers(given)


def test_a_flag_that_a_cell_is_named_after_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(compare, "measure", lambda *given, **more: pytest.fail("measured"))
    monkeypatch.setattr(sys, "argv", ["compare", "--vocab", "64"])
    with pytest.raises(SystemExit) as ended:
        compare.main()
    assert ended.value.code == 2
    assert "--vocab is what the cell 'short, vocabulary 32,000' sets; leave it out" in capsys.readouterr().err
