"""The flags that all benchmarks share, the model they describe, and what every JSON line ends with."""

import argparse
import contextlib
import json
import math
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
from rlagents.machinery import abstract_params


def at_least(minimum: float, kind: Callable[[str], float] = int) -> Callable[[str], float]:
    """Reads the number of a flag; argparse names the flag where it is none, not finite, or below ``minimum``."""
    name = "a whole number" if kind is int else "a finite number"

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < minimum:
            raise argparse.ArgumentTypeError(f"found {text!r}, expected {name}, {minimum} or more")
        return value

    return read


def positive(text: str) -> float:
    """Reads a finite number above 0: tokens drawn at temperature 0 have no log-probability to learn from."""
    value = at_least(0.0, float)(text)
    if not value:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a finite number above 0")
    return value


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Shape of the model and of the work; the same names and defaults whichever library is measured.

    A name is not shortened: what is passed on to others has to mean the same to them.
    """
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    for name, default, minimum in (
        ("layers", 4, 1),
        ("d", 256, 1),
        ("heads", 4, 1),
        ("kv-heads", 2, 1),
        ("head-dim", 0, 0),
        ("ffn", 1024, 1),
        ("vocab", 8192, 2),
        ("prompts", 8, 1),
        ("group", 8, 1),
        ("prompt-len", 64, 1),
        ("gen", 128, 1),
        ("train-micro", 0, 0),
        # The first call compiles.
        ("warmup", 2, 1),
        ("iters", 5, 1),
    ):
        parser.add_argument(f"--{name}", type=at_least(minimum), default=default)
    for name, default in (("beta", 0.04), ("lr", 1e-4)):
        parser.add_argument(f"--{name}", type=at_least(0.0, float), default=default)
    parser.add_argument("--temperature", type=positive, default=1.0)
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


def peak_megabytes() -> int:
    """The most memory that this process has held, in MiB.

    Where the system tells it, of this program alone: ``ru_maxrss`` begins with what the process that started it held.
    """
    with contextlib.suppress(OSError), open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _busy_seconds() -> float:
    with open("/proc/stat") as stat:
        user, nice, system, _, _, *rest = map(int, stat.readline().split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def print_line(flags: argparse.Namespace, config: models.DecoderConfig, watch: Stopwatch, **figures: Any) -> None:
    """One JSON line: what was run on, the shape, the figures."""
    line = {
        "framework": "rlagents",
        "version": rlagents.__version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "params": sum(leaf.size for leaf in jax.tree.leaves(abstract_params(config))),
        **{name: value for name, value in vars(flags).items() if isinstance(value, int | float | str)},
        **{name: _rounded(value) for name, value in figures.items()},
        "other_procs_cores": _rounded(watch.other_processes_cores()),
        "max_rss_mb": peak_megabytes(),
    }
    print(json.dumps(line), flush=True)


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def with_flags(parser: argparse.ArgumentParser, given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse, and refuse what would be measured wrongly."""
    flags = parser.parse_args(given)
    if flags.prompts % (flags.train_micro or flags.prompts):
        parser.error(f"--train-micro {flags.train_micro} does not divide --prompts {flags.prompts}")
    if not flags.head_dim and flags.d % flags.heads:
        parser.error(f"--heads {flags.heads} does not divide --d {flags.d}; give --head-dim")
    try:
        decoder_config(flags)
    except ValueError as error:
        parser.error(f"{error} The sizes are --heads, --kv-heads and --head-dim (0 is --d over --heads)")
    return flags
