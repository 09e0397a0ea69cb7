"""The composition example of the README runs and prints what the README says it prints."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
EXAMPLE = re.compile(
    r"<!-- composition example -->\s*```python\n(?P<code>.*?)```\s*```text\n(?P<printed>.*?)```", re.DOTALL
)


def run_example(text):
    """What the example prints, and what the text says it prints."""
    found = EXAMPLE.search(text)
    if found is None:
        pytest.fail(
            "README.md has no python block after '<!-- composition example -->' followed by a text block of its output"
        )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(found["code"], str(README), "exec"), {"__name__": "readme_example"})
    return printed.getvalue(), found["printed"]


def test_the_composition_example_prints_what_the_readme_says():
    printed, said = run_example(README.read_text(encoding="utf-8"))
    assert printed.strip()
    assert printed == said


def test_a_text_without_the_example_or_with_another_output_fails():
    with pytest.raises(pytest.fail.Exception, match="no python block"):
        run_example("# rlagents")
    printed, said = run_example("<!-- composition example -->\n```python\nprint(1)\n```\n\n```text\n2\n```\n")
    assert (printed, said) == ("1\n", "2\n")
