"""Eight fake CPU devices, set before jax is imported anywhere; programs are let go before they are too many."""

import gc
import itertools
import os
from pathlib import Path
from unittest import mock

import pytest

os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8").strip()
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

_MAPPINGS = 25_000
"""Of the 65,530 memory mappings that Linux grants a process; a compiled program takes about 15 to 60, and is kept."""


_BETWEEN_LOOKS = 20
"""Tests between two looks at the mappings: reading tens of thousands takes as long as many a test."""

_tests_run = itertools.count()


@pytest.fixture(autouse=True)
def _few_memory_mappings():
    """Without it the suite compiles until the process is killed for one mapping too many."""
    yield
    held = Path("/proc/self/maps")
    if next(_tests_run) % _BETWEEN_LOOKS or not held.exists():
        return
    if held.read_bytes().count(b"\n") > _MAPPINGS:
        import jax

        jax.clear_caches()
        gc.collect()


@pytest.fixture
def no_workers(monkeypatch):
    """A run is put together without starting processes."""
    monkeypatch.setattr("rlagents.machinery.ProcessPool", mock.Mock())


@pytest.fixture
def no_processes(monkeypatch):
    """The environment of a run lives in this process."""
    from rlagents.rollouts.local_pool import LocalPool

    monkeypatch.setattr("rlagents.machinery.ProcessPool", lambda environment, **options: LocalPool(environment))


@pytest.fixture(scope="module")
def experiment():
    """The quickstart's, in small."""
    # Not above: jax has to be told of its devices before anything imports it.
    from experiments.quickstart import procedural
    from tests.test_train import small_config

    return procedural.build(small_config())
