"""Programs are counted before and after, and the next process compiles none of them again."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.quickstart import procedural
from rlagents import compilation
from rlagents.compilation import (
    Compilations,
    compilers_memory_returned,
    described,
    planned_programs,
    programs_kept,
    programs_kept_by,
)

ROOT = Path(__file__).resolve().parents[1]

PROGRAM = """
import json, sys
from pathlib import Path
import jax, jax.numpy as jnp
from rlagents.compilation import Compilations, programs_kept

jax.jit(jnp.cos)(1.0)
with programs_kept(Path(sys.argv[1])), Compilations() as compiled:
    step = jax.jit(lambda x, w: jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), x), x, w), donate_argnums=0)
    x, _ = step(jnp.ones((4, 8)), jnp.full((3, 8, 8), 0.1))
print(json.dumps([len(compiled.seconds), compiled.read, float(x.sum())]))
"""


def test_a_second_process_compiles_nothing_anew(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    commands = [[sys.executable, "-c", PROGRAM, f"{tmp_path}/{run}/../programs"] for run in ("first", "second")]
    ran = [
        subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
        for command in commands
    ]
    (compiled, read, value), (again, read_again, same) = (json.loads(one.stdout) for one in ran)
    assert compiled == again >= 1
    assert (read, read_again) == (0, compiled)
    assert value == same


def test_programs_are_counted_while_they_are_listened_for():
    with Compilations() as compiled:
        jax.jit(lambda x: x * 17)(jnp.ones(3)).block_until_ready()
    counted = len(compiled.seconds)
    jax.jit(lambda x: x * 18)(jnp.ones(3)).block_until_ready()
    assert len(compiled.seconds) == counted >= 1
    assert str(compiled).startswith(f"{counted} programs compiled and 0 read from the cache in ")


def test_settings_come_back(tmp_path):
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = [getattr(jax.config, name) for name in names]
    with programs_kept(tmp_path):
        assert [getattr(jax.config, name) for name in names] == [str(tmp_path), 0.0]
    assert [getattr(jax.config, name) for name in names] == before


def test_each_folder_keeps_what_is_compiled_meanwhile(tmp_path):
    numbers = iter(range(1000, 1003))

    def files_after_compiling():
        jax.jit(lambda x: x * next(numbers))(np.ones(3)).block_until_ready()
        return [sum(file.name.endswith("-cache") for file in folder.glob("*")) for folder in folders]

    folders = [tmp_path / "one", tmp_path / "other"]
    counts = []
    for folder in folders:
        with programs_kept(folder):
            counts.append(files_after_compiling())
    counts.append(files_after_compiling())
    assert counts == [[1, 0], [1, 1], [1, 1]]


def test_the_folder_is_relative_to_the_run_and_may_be_none(tmp_path):
    config = procedural.get_config()
    for name, wanted in (("../programs", "programs"), (str(tmp_path / "there"), "there"), ("", None)):
        config.compilation_cache = name
        with programs_kept_by(config, tmp_path / "run"):
            assert jax.config.jax_compilation_cache_dir == (wanted and str(tmp_path / wanted))


def test_what_the_compiler_freed_goes_back_after_each_compilation(monkeypatch):
    trims = []
    library = types.SimpleNamespace(malloc_trim=lambda pad: trims.append(pad))
    monkeypatch.setattr(compilation.ctypes, "CDLL", lambda name: library)
    numbers = iter(range(5000, 5003))

    def trims_of_a_compilation():
        before = len(trims)
        jax.jit(lambda x: x * next(numbers))(np.ones(3)).block_until_ready()
        return len(trims) - before

    with compilers_memory_returned():
        assert trims_of_a_compilation() == 1
    assert trims_of_a_compilation() == 0
    # A C library that cannot.
    del library.malloc_trim
    with compilers_memory_returned():
        assert trims_of_a_compilation() == 0


def test_planned_programs_are_the_shapes_that_buckets_and_limits_allow():
    config = procedural.get_config()
    # Traces have two member buckets. Rows of 256 tokens are read by quarters.
    wanted = {"warm-up step": 2, "prepare": 1, "credit": 1, "step": 1, "scores": 1}
    wanted |= {"prefill": 1, "extend": 4, "decode": 4}
    assert planned_programs(config, max_prefix_tokens=112) == wanted
    assert described(wanted).startswith("programs to compile: at most 15 (warm-up step 2, prepare 1, credit 1, ")
    config.supervised.steps = 0
    config.buckets.update({"prefix_buckets": (500, 1000), "member_buckets": (64, 64, 128, 256)})
    # A prefix of 1000 is computed at 1000, 500, 250 or 125 tokens, and read whole or by half.
    wanted = {"prepare": 6, "credit": 6, "step": 6, "scores": 6, "prefill": 4, "extend": 8, "decode": 8}
    assert planned_programs(config, max_prefix_tokens=1000) == wanted
    # Packed micro-batches are cut to pairs of buckets, whatever the batch; rewards have turns besides.
    config.rl.pack_micro_batches = True
    config.buckets.turn_buckets = (2, 4)
    wanted = {"scores": 12, "credit": 12, "start": 12, "accumulate": 12, "apply": 1, "prefill": 4, "extend": 8}
    assert planned_programs(config, max_prefix_tokens=1000) == wanted | {"decode": 8}
    # Without a log, nobody looks at groups apart.
    config.trajectories.every_steps = 0
    assert planned_programs(config, max_prefix_tokens=1000) == wanted | {"decode": 8, "scores": 6}
    config.rl.steps = 0
    assert planned_programs(config, max_prefix_tokens=1000) == {}
