"""Which code made a run: versions of the packages that decide its numbers, and the commit, where there is one."""

import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("rlagents", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
_ROOT = Path(__file__).resolve().parents[1]


def code_versions() -> dict[str, str]:
    """Name -> version, of what is installed; ``commit`` where rlagents runs from a repository of its own."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # rlagents run from its folder without being installed
            continue
    commit = _commit(_ROOT)
    return found if commit is None else found | {"commit": commit}


def version_differences(stored: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """What differs, a phrase each: ``jax is 0.10.2, was 0.10.1``."""
    return [
        f"{name} is {here.get(name, 'unknown')}, was {stored.get(name, 'unknown')}"
        for name in sorted(stored.keys() | here.keys())
        if stored.get(name) != here.get(name)
    ]


def _commit(root: Path) -> str | None:
    """The commit that ``root`` stands at, with ``+`` where its files differ from it; None where there is none."""
    if not (root / ".git").exists():
        return None  # installed somewhere: a repository around it is another's
    try:
        commit = _git(root, "rev-parse", "--short=12", "HEAD").strip()
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "rlagents")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}+" if changed.strip() else commit


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
