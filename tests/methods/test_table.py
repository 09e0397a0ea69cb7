"""The table of laws leaves no stage of the library out."""

import inspect

from rlagents import methods
from rlagents.methods import Transform, chain
from rlagents.methods.compose import Chain
from tests.methods.table import STAGES

NO_STAGES = {"chain", "identity", "masked", "named_chain"} | {
    "filter_stage",
    "reward_stage",
    "estimator",
    "reshaper",
    "surrogate",
    "penalty",
}


def test_every_stage_of_the_library_has_a_line():
    made = {name: getattr(methods, name) for name in methods.__all__}
    returns = {name: inspect.get_annotations(f).get("return") for name, f in made.items() if inspect.isfunction(f)}
    stages = {name for name, kind in returns.items() if kind in (Transform, Chain, Transform | Chain)} - NO_STAGES
    assert len(stages) > 35
    lines = " ".join(stage.name for line in STAGES.values() for stage in chain(line).stages)
    # A filter is named after its predicate too, and what wraps a surrogate after that.
    assert {name for name in stages if name.removeprefix("with_") not in lines} == set()
