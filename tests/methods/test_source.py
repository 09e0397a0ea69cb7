"""What may stand in the source of methods: division in numerics only, stop_gradient in the border only."""

import ast
from pathlib import Path

import pytest

METHODS = Path(__file__).resolve().parents[2] / "rlagents" / "methods"
DIVIDES = {"/", ".divide", ".true_divide", ".div", ".mean", ".average", ".std", ".var", ".nanmean", ".softmax"}
SPEAKS = {"open", "print", "input", "exec", "eval"}


def words(source):
    """Divisions as "/", attributes as ".name", bare names as "name"."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div | ast.FloorDiv):
            found.add("/")
        elif isinstance(node, ast.Attribute):
            found.add(f".{node.attr}")
        elif isinstance(node, ast.Name):
            found.add(node.id)
    return found


@pytest.mark.parametrize("path", sorted(METHODS.glob("*.py")), ids=lambda path: path.stem)
def test_methods_divide_nowhere_and_detach_at_the_border(path):
    found = words(path.read_text())
    assert not found & DIVIDES, f"{path.name} divides; use numerics.safe_divide or a masked statistic"
    assert not found & SPEAKS, f"{path.name} has a side effect: {found & SPEAKS}"
    assert path.stem == "border" or ".stop_gradient" not in found, f"{path.name} detaches; leave that to the border"


def test_the_border_is_where_it_is_said_to_be():
    assert ".stop_gradient" in words((METHODS / "border.py").read_text())


@pytest.mark.parametrize("source", ["a / b", "a /= b", "x.mean(axis=-1)", "jnp.std(x)", "jax.nn.softmax(x)"])
def test_the_walk_sees_a_division(source):
    assert words(source) & DIVIDES
