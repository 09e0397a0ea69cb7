"""The programs that a run compiles: how many are to come, how many there were, and the cache that keeps them.

XLA compiles a program for each shape that a jitted function is called with. Layers are scanned, so neither the number
of programs nor the time for one grows with the depth of the model; buckets and limits decide how many there are.
"""

import contextlib
import ctypes
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from rlagents.experiment import Config
from rlagents.sampling.sizes import Sizes
from rlagents.trajectory_log import TrajectoryOptions

_COMPILED = "/jax/core/compile/backend_compile_duration"
_READ = "/jax/compilation_cache/cache_hits"


@contextlib.contextmanager
def programs_kept(folder: Path) -> Iterator[None]:
    """Keep every program compiled meanwhile in ``folder``, and take from there what it holds, whoever compiled it.

    A program is the same for the same code, shapes, device kind and JAX; seeds and data do not matter.
    """
    settings = {
        # One name for one folder: it is part of what JAX knows a program by.
        "jax_compilation_cache_dir": str(folder.resolve()),
        # JAX would leave out what compiles in less than a second: nearly all of a small run.
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    _configure(settings)
    try:
        yield
    finally:
        _configure(before)


def programs_kept_by(config: Config, workdir: Path) -> contextlib.AbstractContextManager[None]:
    """:func:`programs_kept` in ``config.compilation_cache``, relative to ``workdir``; nothing where that is empty."""
    folder = config.compilation_cache
    return programs_kept(workdir / folder) if folder else contextlib.nullcontext()


def _configure(settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    # JAX looks at the folder's name once.
    compilation_cache.reset_cache()


@contextlib.contextmanager
def compilers_memory_returned() -> Iterator[None]:
    """After each compilation meanwhile, give the memory that it has freed back to the operating system.

    XLA's CPU compiler works in hundreds of megabytes, which the C library keeps for the process. Where the library
    cannot give memory back (it is not glibc), nothing happens.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def compiled(event: str, duration_secs: float, **_: object) -> None:
        if event == _COMPILED and trim is not None:
            trim(0)

    jax.monitoring.register_event_duration_secs_listener(compiled)
    try:
        yield
    finally:
        jax.monitoring.unregister_event_duration_listener(compiled)


def planned_programs(config: Config, *, max_prefix_tokens: int) -> dict[str, int]:
    """How many programs each jitted function may become, by name: its shapes, as ``config`` allows them.

    Only what trains and samples is counted; setting up, and cutting out packed micro-batches, compile some tens of
    small ones besides. ``max_prefix_tokens`` is the sampler's.
    """
    planned: dict[str, int] = {}
    if config.supervised.steps:
        planned["warm-up step"] = _shapes(config.trace_buckets)
    if config.rl.steps:
        planned |= _learner_programs(config)
        planned |= _sampler_programs(max_prefix_tokens, config.sampler.max_member_tokens)
    return planned


def described(planned: Mapping[str, int]) -> str:
    """One line: how many there are at most, and of what."""
    parts = ", ".join(f"{name} {count}" for name, count in planned.items())
    return f"programs to compile: at most {sum(planned.values())} ({parts}), and small ones that set up"


class Compilations:
    """Counts what this process compiles while it is open. Use as a context manager.

    Attributes:
      seconds: of each program, in the order of compilation; a program read from the cache counts with its reading.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._read: list[str] = []

    def __enter__(self) -> "Compilations":
        jax.monitoring.register_event_duration_secs_listener(self._compiled)
        jax.monitoring.register_event_listener(self._happened)
        return self

    def __exit__(self, *exception: object) -> None:
        jax.monitoring.unregister_event_duration_listener(self._compiled)
        jax.monitoring.unregister_event_listener(self._happened)

    @property
    def read(self) -> int:
        """Programs that were read from the cache instead of being compiled."""
        return len(self._read)

    def __str__(self) -> str:
        number = len(self.seconds)
        return (
            f"{number - self.read} programs compiled and {self.read} read from the cache in {sum(self.seconds):.1f} s"
        )

    def _compiled(self, event: str, duration_secs: float, **_: object) -> None:
        if event == _COMPILED:
            self.seconds.append(duration_secs)

    def _happened(self, event: str, **_: object) -> None:
        if event == _READ:
            self._read.append(event)


def _learner_programs(config: Config) -> dict[str, int]:
    shapes = _shapes(config.buckets)
    of_sequences = _shapes(config.buckets, "prefix", "member")
    # Logged groups are looked at with a batch of their own.
    logged = of_sequences if TrajectoryOptions(**config.trajectories).every_steps else 0
    if not config.rl.pack_micro_batches:
        return dict.fromkeys(("prepare", "credit", "step"), shapes) | ({"scores": logged} if logged else {})
    return {"scores": of_sequences + logged, "credit": shapes, "start": shapes, "accumulate": shapes, "apply": 1}


def _shapes(buckets: Config, *axes: str) -> int:
    return math.prod(len(set(buckets[f"{name}_buckets"])) for name in axes or ("prefix", "member", "turn"))


def _sampler_programs(max_prefix_tokens: int, max_member_tokens: int) -> dict[str, int]:
    sizes = Sizes(
        max_prefix_tokens=max_prefix_tokens,
        max_member_tokens=max_member_tokens,
        # Fixed in every call: they make no further shapes.
        num_groups=1,
        num_rows=1,
        decode_rows=1,
        extend_rows=1,
        prefill_groups=1,
        extend_chunk_tokens=1,
        block_steps=1,
    )
    prefixes, owns = range(max_prefix_tokens + 1), range(1, max_member_tokens + 1)
    prefills = {sizes.prefill_tokens(length) for length in prefixes if length}
    read = {sizes.window(length, 1).prefix_tokens for length in prefixes}
    windows = len(read) * len({sizes.window(0, length).own_tokens for length in owns})
    return {"prefill": len(prefills), "extend": windows, "decode": windows}
