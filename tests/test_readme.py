"""The README's file tree names every file there is, and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("rlagents", "experiments", "launch")


def listed() -> set[str]:
    tree = (ROOT / "README.md").read_text(encoding="utf-8").split("## Files")[1].split("```")[1]
    found, folder = set(), ""
    for line in tree.splitlines():
        if match := re.match(r"(\S+)/(\s|$)", line):
            folder = match[1]
        elif match := re.match(r"  (\S+)", line):
            found.add(f"{folder}/{match[1]}")
    return {path for path in found if path.split("/")[0] in FOLDERS}


def present() -> set[str]:
    kept = {".py", ".sh", ".ipynb"}
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in kept]
    return {str(path.relative_to(ROOT)) for path in paths if path.name != "__init__.py"}


def test_the_file_tree_is_what_is_there():
    assert listed() == present()
