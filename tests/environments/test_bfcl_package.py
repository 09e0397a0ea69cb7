"""The benchmark's package: absent, read-only, and never a reason to load jax. Each in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import rlagents
from rlagents.environments.bfcl_backends import package_folder

ROOT = Path(rlagents.__file__).parents[1]


def run_python(code: str, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "BFCL_PROJECT_ROOT"}
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**inherited, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_an_absent_package_is_named_with_the_command_that_installs_it():
    code = """
import sys
sys.modules["bfcl_eval"] = None
from rlagents.environments.bfcl_procedural import TRAIN, ProceduralTasks, procedural_environment
from rlagents.environments.bfcl_tasks import official_tasks
procedural_environment()
for ask in (lambda: official_tasks("base"), lambda: ProceduralTasks(TRAIN)[0]):
    try:
        ask()
    except ModuleNotFoundError as error:
        print(str(error).count("pip install --no-deps bfcl-eval=="))
"""
    assert run_python(code).split() == ["1", "1"]


def test_nothing_is_written_beside_the_package(tmp_path):
    """Its own loader makes three folders there when imported, which a read-only install does not survive."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "bfcl_eval").symlink_to(package_folder())
    code = """
from rlagents.environments.bfcl import BfclEnvironment
from rlagents.environments.bfcl_tasks import official_tasks
task = official_tasks("long_context")[0]
BfclEnvironment().start(task).step("[pwd()]")
import bfcl_eval.constants.eval_config as config
print(config.PROJECT_ROOT)
"""
    parent = package_folder().parent
    before = {path.name for path in parent.iterdir()}
    output = run_python(code, TMPDIR=str(tmp_path), PYTHONPATH=str(site))
    assert output.strip().startswith(str(tmp_path))
    assert {path.name for path in parent.iterdir()} == before
    assert [path.name for path in site.iterdir()] == ["bfcl_eval"]


def test_environments_and_tools_load_no_jax():
    code = """
import sys
import rlagents.environments.base, rlagents.environments.bfcl, rlagents.environments.bfcl_procedural
import rlagents.tools.call_formats
from rlagents.environments.bfcl_procedural import TRAIN, ProceduralTasks, expert_messages, procedural_environment
expert_messages(procedural_environment(), ProceduralTasks(TRAIN)[0])
print(sorted({"jax", "flax", "torch", "transformers", "numpy"} & set(sys.modules)))
"""
    assert run_python(code).strip() == "[]"
