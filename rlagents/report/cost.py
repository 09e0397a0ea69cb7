"""Where the time of a run went: seconds by phase, and what no phase accounts for."""

from collections.abc import Iterable, Mapping
from typing import Any

from rlagents.report.reading import Run

WARM_UP, EVALUATION, ELSEWHERE = "warm-up", "evaluation", "elsewhere"
_PHASE = "seconds/"
_BESIDE = "rollout_ahead"
"""Runs while others do, so that it is no part of the time that passed."""
_LONGEST = 1e300
"""Seconds; what a damaged log says beyond is not added up to infinity."""


def seconds_by_phase(run: Run) -> dict[str, float]:
    """Seconds of each phase over the whole run, the longest first.

    The phases of RL are the ``seconds/<phase>`` of ``metrics.jsonl``, summed. ``warm-up`` is the sum of ``seconds`` in
    ``warm_up.jsonl``, and ``evaluation`` that of ``seconds`` in ``evaluations.jsonl``: lines of metrics know of no
    evaluation after the last of them. Older logs, whose evaluations have none, count as their metrics do.

    ``elsewhere`` is the time up to the newest evaluation (``seconds_since_start``) that all of these leave over: the
    start, loading, what one phase hands to the next, and the warm-up where its log has no times.
    """
    phases = _phases(run.metrics)
    if warm_up := _sum(run.warm_up, "seconds"):
        phases[WARM_UP] = warm_up
    if run.evaluations and all(_number(row.get("seconds")) is not None for row in run.evaluations):
        phases[EVALUATION] = _sum(run.evaluations, "seconds")
    if (left_over := _elsewhere(run, phases)) > 0:
        phases[ELSEWHERE] = left_over
    return {name: round(value, 3) for name, value in sorted(phases.items(), key=lambda item: -item[1])}


def _phases(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            if name.startswith(_PHASE) and (seconds := _number(value)) is not None:
                phase = name.removeprefix(_PHASE)
                sums[phase] = min(_LONGEST, sums.get(phase, 0.0) + seconds)
    return sums


def _elsewhere(run: Run, phases: Mapping[str, float]) -> float:
    """Of the time up to the newest evaluation; what came after it is on no clock."""
    newest = run.evaluations[-1] if run.evaluations else {}
    passed = _number(newest.get("seconds_since_start"))
    if passed is None:
        return 0.0
    before = _phases(row for row in run.metrics if row["step"] < newest["step"])
    before |= {name: phases[name] for name in (WARM_UP, EVALUATION) if name in phases}
    return passed - sum(seconds for name, seconds in before.items() if name != _BESIDE)


def _sum(rows: Iterable[Mapping[str, Any]], name: str) -> float:
    return min(_LONGEST, sum(seconds for row in rows if (seconds := _number(row.get(name))) is not None))


def _number(value: Any) -> float | None:
    """Seconds, or None for what is none."""
    return float(value) if isinstance(value, (int, float)) and value >= 0 else None
