"""The flags that all benchmarks share, the model they describe, and what every JSON line ends with."""

import argparse
import json
import os
import platform
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rlagents
from rlagents import models


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Shape of the model and of the work; the same names and defaults whichever library is measured."""
    parser = argparse.ArgumentParser(description=description)
    for name, default in (
        ("layers", 4),
        ("d", 256),
        ("heads", 4),
        ("kv-heads", 2),
        ("head-dim", 0),
        ("ffn", 1024),
        ("vocab", 8192),
        ("prompts", 8),
        ("group", 8),
        ("prompt-len", 64),
        ("gen", 128),
        ("train-micro", 0),
        ("warmup", 2),
        ("iters", 5),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("beta", 0.04), ("lr", 1e-4), ("temperature", 1.0)):
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--untied", action="store_true")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    return parser


def decoder_config(flags: argparse.Namespace) -> models.DecoderConfig:
    """A Qwen2 of these sizes; weights are float32, as with the peers."""
    return models.DecoderConfig(
        vocab_size=flags.vocab,
        embed_dim=flags.d,
        mlp_dim=flags.ffn,
        num_layers=flags.layers,
        num_heads=flags.heads,
        num_kv_heads=flags.kv_heads,
        head_dim=flags.head_dim or flags.d // flags.heads,
        rope_theta=1_000_000.0,
        qkv_bias=True,
        tie_embeddings=not flags.untied,
        compute_dtype=jnp.dtype(flags.dtype),
    )


def prompts(flags: argparse.Namespace, seed: int) -> list[list[int]]:
    """Random token ids, ``[prompts][prompt_len]``."""
    rng = np.random.default_rng(seed)
    return rng.integers(1, flags.vocab, (flags.prompts, flags.prompt_len)).tolist()


class Stopwatch:
    """Wall and CPU time of calls by name, results waited for; and how busy others kept the machine meanwhile."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.cpu_seconds: dict[str, list[float]] = {}
        self._begun = _busy_seconds(), time.process_time(), time.perf_counter()

    def __call__(self, name: str, function: Callable[[], Any]) -> Any:
        """Call, wait, note the seconds."""
        start, cpu = time.perf_counter(), time.process_time()
        result = jax.block_until_ready(function())
        self.seconds.setdefault(name, []).append(time.perf_counter() - start)
        self.cpu_seconds.setdefault(name, []).append(time.process_time() - cpu)
        return result

    def median(self, name: str, warmup: int) -> float:
        """Median seconds of the calls after the first ``warmup``."""
        return float(np.median(self.seconds[name][warmup:]))

    def median_cpu(self, name: str, warmup: int) -> float:
        """The same of the seconds that this process kept cores busy."""
        return float(np.median(self.cpu_seconds[name][warmup:]))

    def other_processes_cores(self) -> float:
        """Cores that other processes kept busy since the stopwatch was made; above 0.15 no figure counts."""
        busy, own, clock = self._begun
        return (_busy_seconds() - busy - (time.process_time() - own)) / (time.perf_counter() - clock)


def _busy_seconds() -> float:
    with open("/proc/stat") as stat:
        user, nice, system, _, _, *rest = map(int, stat.readline().split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def print_line(flags: argparse.Namespace, config: models.DecoderConfig, watch: Stopwatch, **figures: Any) -> None:
    """One JSON line: what was run on, the shape, the figures."""
    shapes = jax.eval_shape(lambda key: models.init_params(config, key), jax.random.key(0))
    line = {
        "framework": "rlagents",
        "version": rlagents.__version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "params": sum(leaf.size for leaf in jax.tree.leaves(shapes)),
        **{name: value for name, value in vars(flags).items() if isinstance(value, int | float | str)},
        **{name: _rounded(value) for name, value in figures.items()},
        "other_procs_cores": _rounded(watch.other_processes_cores()),
        "max_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(line), flush=True)


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def with_flags(parser: argparse.ArgumentParser, given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse, and refuse what would be measured wrongly."""
    flags = parser.parse_args(given)
    if flags.prompts % (flags.train_micro or flags.prompts):
        parser.error(f"--train-micro {flags.train_micro} does not divide --prompts {flags.prompts}")
    if flags.iters < 1 or flags.warmup < 1:
        parser.error("--iters and --warmup must be 1 or more: the first call compiles")
    return flags
