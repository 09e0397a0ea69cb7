"""A run knows the code that made it; what is around it in somebody's home is not that code."""

import subprocess

import jax

from rlagents import versions
from rlagents.versions import code_versions, version_differences


def git(folder, *arguments):
    identity = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_packages_that_decide_numbers_are_named():
    found = code_versions()
    assert found["jax"] == jax.__version__
    assert {"python", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy"} <= found.keys()


def test_the_commit_is_that_of_its_own_repository_and_says_where_files_differ(tmp_path, monkeypatch):
    root = tmp_path / "repository"
    (root / "rlagents").mkdir(parents=True)
    (root / "rlagents" / "module.py").write_text("one")
    git(tmp_path, "init", "-q", str(root))
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    head = git(root, "rev-parse", "--short=12", "HEAD")
    monkeypatch.setattr(versions, "_ROOT", root)
    assert code_versions()["commit"] == head
    (root / "rlagents" / "module.py").write_text("two")
    assert code_versions()["commit"] == f"{head}+"
    # Installed somewhere inside another repository.
    (root / "site-packages").mkdir()
    monkeypatch.setattr(versions, "_ROOT", root / "site-packages")
    assert "commit" not in code_versions()


def test_differences_are_named():
    assert version_differences({"jax": "1", "flax": "2"}, {"jax": "1", "flax": "2"}) == []
    assert version_differences({"jax": "1", "flax": "2"}, {"jax": "3", "commit": "c"}) == [
        "commit is c, was unknown",
        "flax is unknown, was 2",
        "jax is 3, was 1",
    ]
