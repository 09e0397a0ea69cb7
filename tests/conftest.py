"""Eight fake CPU devices, set before jax is imported anywhere; which tests share a process when there are several."""

import os

import pytest

os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8").strip()
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# These run the same methods, which one process compiles once for all of them.
_LAWS = {"test_algebra", "test_border", "test_execution", "test_recipe_oracles", "test_rows"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """With ``--dist loadgroup``: the laws of methods in one process, any other file in one."""
    for item in items if config.pluginmanager.hasplugin("xdist") else ():
        item.add_marker(pytest.mark.xdist_group("laws" if item.path.stem in _LAWS else item.path.stem))
