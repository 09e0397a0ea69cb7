"""Rollouts of many turns sample the same number of tokens whichever variant runs, and its line says which one did."""

import itertools
import json
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.benchmarks import agentic_rollout, shapes

SIZES = {
    **{"layers": 1, "d": 8, "heads": 2, "kv-heads": 1, "ffn": 8, "vocab": 16, "prompts": 2, "group": 2},
    **{"prompt-len": 5, "warmup": 1, "iters": 1, "turns": 2, "turn-tokens": 3, "observation-tokens": 4},
    **{"block-steps": 2},
}
TINY = [text for name, value in SIZES.items() for text in (f"--{name}", str(value))]


def flags_of(*given):
    parser = agentic_rollout.add_flags(shapes.arguments(None))
    return agentic_rollout.sized(shapes.with_flags(parser, [*TINY, *given]))


def test_variants_sample_the_same_number_of_tokens_and_the_line_names_them(monkeypatch, capsys):
    make, counts, tools = agentic_rollout.make_variant, {}, {}

    def counted(name, flags, params, tool_seconds):
        variant = make(name, flags, params, tool_seconds)
        tools[name] = tool_seconds

        def run(seed):
            counts.setdefault(name, []).append(variant(seed))
            return counts[name][-1]

        return run

    monkeypatch.setattr(agentic_rollout, "make_variant", counted)
    given = [*TINY, "--tool-seconds", "0.01", "--compare", "reprefill", "slow-tool"]
    monkeypatch.setattr(sys, "argv", ["agentic_rollout", *given])
    agentic_rollout.main()
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    # Members, turns, tokens a turn; once to compile and once to measure.
    assert counts == dict.fromkeys(("ours", "reprefill", "slow-tool"), [4 * 2 * 3] * 2)
    # All others have an instant tool then.
    assert tools == {"ours": 0.0, "reprefill": 0.0, "slow-tool": 0.01}
    assert line["mode"] == "ours reprefill slow-tool"
    assert (line["members"], line["in_flight"], line["decode_rows"], line["tool_seconds"]) == (4, 4, 4, 0.01)
    for name in ("ours", "reprefill", "slow-tool"):
        np.testing.assert_allclose(line[f"{name}_tok_s"], 24 / line[f"{name}_s"], rtol=0.2)
    assert {f"{name}_over_ours_{kind}" for name in ("reprefill", "slow-tool") for kind in ("s", "cpu_s")} <= set(line)
    assert {"max_rss_mb", "other_procs_cores", "params", "framework"} <= set(line)


def test_anew_every_history_is_a_prompt_and_all_wait_for_the_slowest_tool(monkeypatch):
    flags, asked, slept = flags_of("--turns", "3"), [], []

    def generate(histories, num_tokens, *, seed):
        asked.append([list(history) for history in histories])
        return [[SimpleNamespace(token_ids=[7] * num_tokens)] for _ in histories]

    monkeypatch.setattr(time, "sleep", slept.append)
    samplers = [SimpleNamespace(generate=generate)] * flags.turns
    sampled = agentic_rollout.compute_histories_anew(flags, samplers, 0, tool_seconds=2.0)
    assert sampled == 4 * 3 * 3
    assert slept == [2.0, 2.0]
    # A prompt of 5 tokens; every turn adds 3 of its own and 4 observed.
    assert [{len(history) for history in histories} for histories in asked] == [{5}, {12}, {19}]
    for before, after in itertools.pairwise(asked):
        for short, long in zip(before, after):
            assert long[: len(short)] == short
            assert long[len(short) : len(short) + 3] == [7] * 3
    assert asked[0][0] == asked[0][1] != asked[0][2]


def test_zero_stands_for_all_of_them():
    flags = flags_of("--members", "12", "--in-flight", "8", "--decode-rows", "6")
    assert (flags.members, flags.prompts, flags.in_flight, flags.decode_rows, flags.extend_rows) == (12, 6, 8, 6, 6)
    assert flags_of().mode == "ours"
    assert flags_of("--mode", "reprefill").mode == "reprefill"
    assert flags_of("--compare", "reprefill-exact", "one-block").mode == "ours reprefill-exact one-block"


def test_what_would_be_measured_wrongly_is_refused(capsys, monkeypatch):
    for given, said in (
        (["--compare", "slow-tool"], "--tool-seconds 0, expected more"),
        (["--members", "3"], "expected whole groups of --group 2"),
        (["--in-flight", "3"], "expected whole groups of --group 2"),
        (["--in-flight", "6"], "found --in-flight 6, expected 4 at most, which is --members"),
        (["--decode-rows", "5"], "found --decode-rows 5, expected 4 at most, which is --in-flight"),
        (["--in-flight", "2", "--decode-rows", "3"], "found --decode-rows 3, expected 2 at most"),
        (["--extend-rows", "5"], "found --extend-rows 5, expected 4 at most, which is --in-flight"),
    ):
        with pytest.raises(ValueError, match=said):
            flags_of(*given)
        monkeypatch.setattr(sys, "argv", ["agentic_rollout", *TINY, *given])
        with pytest.raises(SystemExit) as ended:
            agentic_rollout.main()
        assert ended.value.code == 2
        assert said in capsys.readouterr().err
    one = ("turns", "turn-tokens", "observation-tokens", "block-steps")
    none = ("extend-rows", "members", "in-flight", "decode-rows", "tool-seconds", "host-seconds")
    refused = [([f"--{name}", "0"], f"--{name}: found '0'") for name in one]
    refused += [([f"--{name}", "-1"], f"--{name}: found '-1'") for name in none]
    refused += [([f"--{name}", "nan"], f"--{name}: found 'nan'") for name in none]
    refused += [
        (["--mode", "reprefill", "--compare", "one-block"], "not allowed with"),
        (["--compare"], "at least one"),
        *[(["--blocks-in-flight", given], "--blocks-in-flight: invalid choice") for given in ("0", "3")],
    ]
    for given, said in refused:
        with pytest.raises(SystemExit):
            flags_of(*given)
        assert said in capsys.readouterr().err
