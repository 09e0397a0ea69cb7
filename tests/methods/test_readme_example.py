"""The composition example of the README runs and prints what the README says it prints."""

import contextlib
import dataclasses
import io
import re
from pathlib import Path

import pytest

from tests.methods.batches import make_batch

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


def block(name, text):
    """The python block after the comment of this name."""
    return re.search(rf"<!-- {name} -->\s*```python\n(.*?)```", text, re.DOTALL)[1]


def test_the_fields_of_an_experiment_that_the_readme_gives_are_there():
    code = block("sampling example", README.read_text(encoding="utf-8"))
    assert "Experiment(\n    ...,\n" in code
    there = {}
    exec(code.replace("Experiment(\n    ...,\n", "given = dict(\n"), there)
    assert len(there["given"]) == 4
    assert there["given"].keys() <= {field.name for field in dataclasses.fields(there["Experiment"])}


def test_the_composition_across_papers_is_a_method():
    there = {}
    exec(block("across papers", README.read_text(encoding="utf-8")), there)
    assert "condition_advantage" in there["both"].stage_names
    credit = there["both"].credit(there["both"].init(), *make_batch(0, (8, 8, 12, 3), invalid=0.0))[0]
    assert credit.advantages.any()


def test_a_text_without_the_example_or_with_another_output_fails():
    with pytest.raises(pytest.fail.Exception, match="no python block"):
        run_example("# rlagents")
    printed, said = run_example("<!-- composition example -->\n```python\nprint(1)\n```\n\n```text\n2\n```\n")
    assert (printed, said) == ("1\n", "2\n")
