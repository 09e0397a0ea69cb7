"""The README's file tree names every file there is, and no other; its tables are what the library says."""

import inspect
import re
from pathlib import Path

from rlagents.methods import recipes
from rlagents.metrics import names
from tests.method_table import rows

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
    kept = {".py", ".sh", ".ipynb", ".md"}
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in kept]
    return {str(path.relative_to(ROOT)) for path in paths if path.name != "__init__.py"}


def test_the_file_tree_is_what_is_there():
    assert listed() == present()


def test_the_table_of_methods_says_what_the_recipes_are():
    """Names, sentences, sources and needs; the differences beside them are measured, and small."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").split("## Methods")[1].split("\n## ")[0].splitlines()
    found = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    assert [row[:-1] for row in found] == list(rows().values())
    numbers = [float(number) for row in found for number in re.findall(r"\d\.\de-\d\d", row[-1])]
    assert len(numbers) >= len(found)
    assert max(numbers) <= 1e-5
    made = inspect.getmembers(recipes, inspect.isfunction)
    assert {name for name, function in made if function.__module__ == recipes.__name__} == set(rows())


def test_the_table_of_metrics_is_the_one_printed():
    text = (ROOT / "rlagents" / "metrics" / "README.md").read_text(encoding="utf-8")
    assert text.split("\n\n")[-1].strip() == names.table().strip()
