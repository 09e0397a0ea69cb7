"""The examples in the docstrings of methods say the truth, and every stage has one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import rlagents.methods
from rlagents.methods import Method, Transform, predicates, recipes, reductions
from rlagents.methods.compose import Chain

MODULES = sorted(f"rlagents.methods.{module.name}" for module in pkgutil.iter_modules(rlagents.methods.__path__))


def stages():
    """Public functions whose return annotation is a stage."""
    for name in MODULES:
        for key, made in inspect.getmembers(importlib.import_module(name), inspect.isfunction):
            returns = inspect.get_annotations(made).get("return")
            if made.__module__ == name and key[0] != "_" and returns in (Transform, Chain, Transform | Chain):
                yield made


@pytest.mark.parametrize("name", MODULES)
def test_examples_come_out_as_written(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


HELPERS = {"chain", "identity", "masked", "named_chain", "filter_stage", "reward_stage", "estimator", "reshaper"} | {
    "surrogate",
    "penalty",
}


def test_every_stage_shows_what_it_makes_of_the_specimen():
    found = {made.__name__: made for made in stages() if made.__name__ not in HELPERS}
    assert len(found) > 35
    assert {"group_advantage", "clipped_surrogate", "kl_penalty_k3", "drop", "entropy_bonus"} <= found.keys()
    without = [name for name, made in found.items() if "specimen." not in (made.__doc__ or "")]
    assert not without, "no example on the specimen"


def test_every_predicate_and_reduction_shows_itself_too():
    others = [f for module in (predicates, reductions) for f in vars(module).values() if inspect.isfunction(f)]
    others = [f for f in others if f.__module__ in (predicates.__name__, reductions.__name__)]
    assert len(others) >= 9
    assert not [f.__name__ for f in others if "specimen." not in (f.__doc__ or "")]


def test_every_recipe_is_public_and_makes_a_method():
    made = [f for n, f in vars(recipes).items() if inspect.isfunction(f) and f.__module__ == recipes.__name__]
    assert all(inspect.get_annotations(f)["return"] is Method for f in made)
    assert len(made) >= 14
