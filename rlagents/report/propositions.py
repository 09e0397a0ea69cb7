"""RC-GRPO's two propositions over a run: what was measured within its groups beside the bound."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Compared(NamedTuple):
    """Names in ``metrics.jsonl``: what is measured, what it is not below but for sampling error, and of how many groups
    of a step both are means."""

    title: str
    measured: str
    bound: str
    groups: str


COMPARED = (
    Compared("4.2, collapse", "peaked_identical", "peaked_identical_bound", "peaked_groups"),
    Compared("4.3, variance", "mixed_variance", "mixed_variance_bound", "mixed_groups"),
)


def propositions(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``{"title", "measured", "bound", "margin", "error", "steps", "groups"}`` of each proposition that ``rows`` say
    something of.

    ``measured`` and ``bound`` are means over all groups of the run, ``margin`` is their difference, and ``error`` its
    standard error, from how much the margins of steps vary (weighted by their groups; None of one step):

        error^2 = n / (n - 1) sum_i w_i^2 (margin_i - margin)^2,     w_i = groups of step i / groups,  n steps

    A margin below zero by several errors speaks against the proposition; one step alone does not.
    """
    rows, found = list(rows), []
    for title, measured, bound, groups in COMPARED:
        said = [[_number(row.get(name)) for name in (measured, bound, groups)] for row in rows]
        steps = [step for found_there in said if (step := _step(*found_there)) is not None]
        if not steps:
            continue
        whole, n = math.fsum(many for _, _, many in steps), len(steps)
        means = [math.fsum(step[at] * (step[2] / whole) for step in steps) for at in (0, 1)]
        margin = means[0] - means[1]
        squares = math.fsum(((one - other - margin) * (many / whole)) ** 2 for one, other, many in steps)
        error = math.sqrt(n / (n - 1) * squares) if n > 1 else None
        row = {"measured": means[0], "bound": means[1], "margin": margin, "error": error}
        numbers = {name: value if value is None else float(f"{value:.6g}") for name, value in row.items()}
        found.append({"title": title, **numbers, "steps": n, "groups": int(whole)})
    return found


def _step(measured: float | None, bound: float | None, groups: float | None) -> tuple[float, float, float] | None:
    return (measured, bound, groups) if measured is not None and bound is not None and groups else None


def _number(value: Any) -> float | None:
    """None also for what no mean could be: these are shares, variances of rewards and counts."""
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e100 else None
