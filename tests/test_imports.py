"""Imports run one way; the walk reads every import statement in the package, wherever it stands."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "rlagents"

MAY_IMPORT = {
    # What each part may take from the package beside itself. A part that is not listed is a program: it may take
    # anything, and nobody listed may take it.
    "argument_checks": set(),
    "facts": set(),
    "types": set(),
    "numerics": {"types"},
    "methods": {"types", "numerics"},
    "sharding": {"types"},
    "row_chunks": {"sharding"},
    "learner": {"types", "numerics", "methods", "sharding", "row_chunks"},
    "durable": set(),
    "versions": set(),
    "checkpoints": {"argument_checks", "durable", "types", "learner", "sharding"},
    "metrics": {"argument_checks", "durable", "problems"},
    "alarms": {"argument_checks"},
    "token_pieces": set(),
    "trajectory_lines": set(),
    "report": {"metrics", "trajectory_lines"},
    "models": {"types", "sharding", "row_chunks"},
    "sampling": {"argument_checks", "types", "sharding", "models"},
    "environments": {"facts", "tools"},
    "tools": {"facts", "environments"},
    "rollouts": {"argument_checks", "facts", "types", "sampling", "models", "environments", "tools"},
    "data": {"facts", "types"},
}

NOWHERE = {"torch", "trl", "tunix", "tensorflow"}
PURE = {"__future__", "collections", "dataclasses", "enum", "functools", "itertools", "math", "typing"}
ONLY_OUTSIDE = {
    # What these parts may take from outside the package: no I/O, no configuration, no neural-network library.
    "types": PURE | {"jax", "jaxtyping"},
    "numerics": PURE | {"jax", "jaxtyping"},
    "methods": PURE | {"jax", "jaxtyping"},
}
WITHOUT = {
    "environments": {"jax", "jaxlib", "jaxtyping", "flax", "optax"},
    "tools": {"jax", "jaxlib", "jaxtyping", "flax", "optax"},
    "facts": {"jax", "jaxlib", "jaxtyping", "flax", "optax"},
    "report": {"jax", "jaxlib", "jaxtyping", "flax", "optax"},
}


def imported(source, module):
    """Full names that a module's source imports, also inside functions and through ``import_module("...")``."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*module.split(".")[: -node.level], *([base] if base else [])])
            names += [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and node.args and isinstance(node.args[0], ast.Constant):
                names.append(str(node.args[0].value))
    return names


def part_of(name):
    """``rlagents.methods.base`` belongs to ``methods``."""
    return name.split(".")[1] if "." in name else ""


def faults(source, module):
    """What is wrong with a module's imports, one sentence each."""
    part, found = part_of(module), []
    for name in imported(source, module):
        top = name.split(".")[0]
        if top in NOWHERE:
            found.append(f"{module} imports {name}, which belongs in tests only")
        if top == "rlagents":
            taken = part_of(name)
            if part == "":
                found.append(f"rlagents/__init__.py imports {name}; it imports nothing")
            elif part in MAY_IMPORT and taken not in MAY_IMPORT[part] | {part, "__version__"}:
                found.append(f"{module} imports {name}: {part} may import {sorted(MAY_IMPORT[part])}")
            continue
        if part == "" and top not in sys.stdlib_module_names:
            found.append(f"rlagents/__init__.py imports {name}; it imports nothing heavy")
        if top in WITHOUT.get(part, ()):
            found.append(f"{module} imports {name}: tool workers and reports never load it")
        if part in ONLY_OUTSIDE and top not in ONLY_OUTSIDE[part]:
            found.append(f"{module} imports {name}: {part} may import {sorted(ONLY_OUTSIDE[part])}")
    return found


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def test_the_package_keeps_its_directions():
    assert len(MODULES) > 20
    found = []
    for module, path in MODULES.items():
        # Relative imports of a package's __init__ count from the package itself.
        found += faults(
            path.read_text(), f"{module}.__init__" if path.name == "__init__.py" and "." in module else module
        )
    assert not found, "\n".join(found)


def test_every_folder_of_the_package_has_a_rule():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders <= MAY_IMPORT.keys(), f"add {sorted(folders - MAY_IMPORT.keys())} to MAY_IMPORT"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("rlagents.numerics", "from rlagents.methods import chain"),
        ("rlagents.methods.base", "from rlagents.learner import step"),
        ("rlagents.methods.base", "import optax"),
        ("rlagents.methods.base", "import json"),
        ("rlagents.methods.base", "def f():\n    from flax import nnx"),
        ("rlagents.learner.update", "from rlagents import models"),
        ("rlagents.learner.update", "from ..models.decoder import logits"),
        ("rlagents.models.decoder", "from rlagents.sampling.state import State"),
        ("rlagents.models.decoder", "import torch.nn"),
        ("rlagents.sampling.sampler", "from rlagents.rollouts import chat"),
        ("rlagents.sampling.sampler", "from rlagents.train import main"),
        ("rlagents.rollouts.driver", "from rlagents.learner import update"),
        ("rlagents.environments.bfcl", "import jax.numpy as jnp"),
        ("rlagents.environments.bfcl", "from rlagents.types import Batch"),
        ("rlagents.tools.sandbox", "from rlagents import numerics"),
        ("rlagents.train", "import importlib\nimportlib.import_module('tunix')"),
        ("rlagents", "from rlagents.types import Batch"),
        ("rlagents", "import jax"),
    ],
)
def test_the_walk_sees_a_wrong_import(module, source):
    assert len(faults(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("rlagents.methods.base", "from rlagents.types import Credit\nfrom .compose import chain\nimport jax"),
        ("rlagents.rollouts.driver", "from rlagents.environments.base import Environment\nimport jax"),
        ("rlagents.train", "from rlagents import learner, models, rollouts\nimport optax"),
    ],
)
def test_the_walk_lets_a_right_import_pass(module, source):
    assert faults(source, module) == []


def test_oracles_import_numpy_only():
    for path in (ROOT / "tests" / "oracles").glob("*.py"):
        for name in imported(path.read_text(), f"tests.oracles.{path.stem}"):
            assert name.split(".")[0] == "numpy", f"{path.name} imports {name}"


@pytest.mark.parametrize(
    ("parts", "unwanted"),
    [
        pytest.param(("environments", "tools", "facts", "report"), {"jax", "jaxlib", "torch"}, id="no jax in workers"),
        # Libraries that take in torch where they find it are imported where they are asked for, not before.
        pytest.param(("train", "evaluate", "report", "compilation"), NOWHERE, id="no judges in programs"),
    ],
)
def test_modules_leave_libraries_out_of_a_fresh_process(parts, unwanted):
    """One process imports them all, one after the other, and names the first that brings one in."""
    modules = [name for name in MODULES if part_of(name) in parts]
    assert len(modules) > 3
    program = (
        "import importlib, sys\n"
        f"for name in {modules}:\n"
        "    importlib.import_module(name)\n"
        f"    loaded = {unwanted} & set(sys.modules)\n"
        "    assert not loaded, f'importing {name} loads {loaded}'\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("first", "said"), [("sys", "PyTorch was not found"), ("rlagents.command_line", "")])
def test_nobody_is_told_that_torch_is_missing(first, said):
    program = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, package=None: None if name == 'torch' else find(name, package)\n"
        f"import {first}\n"
        "import transformers\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRANSFORMERS_NO_ADVISORY_WARNINGS"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert (said in done.stderr) if said else done.stderr == ""
