"""What a run says of RC-GRPO's propositions is what its groups say, each counted once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlagents.metrics.names import CONDITIONS
from rlagents.report.propositions import COMPARED, propositions
from tests.oracles import propositions as oracle

STEP = st.tuples(st.floats(0, 1), st.floats(-0.3, 1), st.integers(0, 20))


def rows_of(compared, steps):
    return [
        {compared.measured: measured, compared.bound: bound, compared.groups: groups}
        for measured, bound, groups in steps
    ]


@pytest.mark.parametrize("compared", COMPARED, ids=lambda one: one.measured)
@given(steps=st.lists(STEP, max_size=8))
def test_means_and_errors_are_those_of_the_groups(compared, steps):
    found = propositions(rows_of(compared, steps))
    counted = [step for step in steps if step[2]]
    if not counted:
        assert found == []
        return
    (said,) = found
    measured, bound, error = oracle.compared(*zip(*counted))
    assert said["title"] == compared.title
    assert (said["steps"], said["groups"]) == (len(counted), sum(step[2] for step in counted))
    assert said["measured"] == pytest.approx(measured, abs=1e-6)
    assert said["bound"] == pytest.approx(bound, abs=1e-6)
    assert said["margin"] == pytest.approx(measured - bound, abs=1e-5)
    assert said["error"] == (None if error is None else pytest.approx(error, abs=1e-6))


def test_the_error_shrinks_with_the_steps_and_covers_the_truth():
    """Of 400 runs with a true margin of 0, about 95% say so within 1.96 errors."""
    draw, covered = np.random.default_rng(0), 0
    for _ in range(400):
        steps = [(float(draw.normal(0.2, 0.1 / np.sqrt(many))), 0.2, int(many)) for many in draw.integers(1, 9, 60)]
        (said,) = propositions(rows_of(COMPARED[1], steps))
        covered += abs(said["margin"]) < 1.96 * said["error"]
    assert 0.9 < covered / 400 < 0.98


def test_what_is_no_number_is_left_out_and_names_are_those_of_the_table():
    rows = rows_of(COMPARED[1], [(0.25, 0.2, 4)])
    rows += [{"mixed_variance": "nan", "mixed_variance_bound": 0.1, "mixed_groups": 3}, {"mixed_groups": 0}, {}]
    rows += rows_of(COMPARED[1], [(1.7e308, 0.2, 4)])
    (said,) = propositions(rows)
    assert (said["measured"], said["bound"], said["error"], said["steps"]) == (0.25, 0.2, None, 1)
    names = {entry.name for entry in CONDITIONS}
    assert {name for one in COMPARED for name in one[1:]} <= names
