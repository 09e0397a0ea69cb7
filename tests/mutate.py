"""Do the tests notice when a formula is wrong? Applies small wrong edits, one at a time, and counts those noticed.

    python -m tests.mutate          # all of tests/mutations*.py, with a line each
    python -m tests.mutate WORD...  # those whose file or edit has all the words

Each edit is made in a copy of the package, in which the tests chosen for it are run; it is killed if one of them fails,
and survives if all pass. Anything else (nothing collected, tests skipped, an edit that cannot be imported) is an error.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.browser import browser_path
from tests.mutations import METHODS, MUTATIONS, Mutation
from tests.mutations_of_models import MUTATIONS_OF_MODELS
from tests.mutations_of_runs import MUTATIONS_OF_RUNS

ROOT = Path(__file__).resolve().parents[1]
ALL = [*MUTATIONS, *MUTATIONS_OF_RUNS, *MUTATIONS_OF_MODELS]
_PASSED, _FAILED = 0, 1  # pytest's exit codes
_BROKEN = re.compile(r"^E +(NameError|ImportError|AttributeError|SyntaxError|UnboundLocalError)\b.*", re.MULTILINE)


class MutationError(ValueError):
    """An edit of the list that is none: its text is not there, or its tests do not run."""


def edited(source: str, mutation: Mutation) -> str:
    """``source`` after the edit. Raises :class:`MutationError` unless ``old`` stands there as often as it should."""
    if source.count(mutation.old) != mutation.times:
        raise MutationError(
            f"{mutation.file} has {mutation.old!r} {source.count(mutation.old)} times; expected {mutation.times}: the"
            " code has moved on, mend the list of edits."
        )
    return source.replace(mutation.old, mutation.new, 1)


def run_tests(root: Path, mutation: Mutation) -> subprocess.CompletedProcess:
    """The tests chosen for this edit, on the code under ``root``."""
    tests = mutation.tests if "/" in mutation.tests else METHODS + mutation.tests
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-rs", "-p", "no:cacheprovider", "-p", "no:xdist", tests]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    if (browser := browser_path()) is not None:
        environment |= {"RLAGENTS_BROWSER": browser}
    return subprocess.run(
        [*command, "-k", mutation.chosen], cwd=root, env=environment, capture_output=True, text=True, timeout=600
    )


def killed(mutation: Mutation) -> bool:
    """Whether a test fails on the edited code. Raises :class:`MutationError` if it cannot be told."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("rlagents", "experiments", "tests"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", root)
        path = root / mutation.file
        path.write_text(edited(path.read_text(encoding="utf-8"), mutation), encoding="utf-8")
        done = run_tests(root, mutation)
    if done.returncode not in (_PASSED, _FAILED):
        raise MutationError(f"the tests of {mutation} ended with code {done.returncode}:\n{done.stdout[-2000:]}")
    if done.returncode == _PASSED and "SKIPPED" in done.stdout:
        raise MutationError(f"tests of {mutation} were skipped:\n{done.stdout[-2000:]}")
    broken = _BROKEN.search(done.stdout)
    if broken:
        raise MutationError(f"{mutation} makes no other formula but a program that does not run: {broken[0]}.")
    return done.returncode == _FAILED


def main(words: Sequence[str]) -> int:
    """Print a line for each edit; 1 if any survives or is none."""
    chosen = [m for m in ALL if all(word in f"{m.file} {m.old} {m.new}" for word in words)]
    if not chosen:
        print(f"no edit has all of the words {list(words)}")
        return 2
    dead = 0
    for number, mutation in enumerate(chosen, 1):
        try:
            verdict = "killed" if killed(mutation) else "SURVIVES"
        except MutationError as error:
            verdict = f"ERROR ({error})"
        dead += verdict == "killed"
        print(f"{number}/{len(chosen)} {verdict}: {mutation.file}: {mutation.old!r} -> {mutation.new!r}", flush=True)
    print(f"{dead} of {len(chosen)} killed")
    return int(dead < len(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
