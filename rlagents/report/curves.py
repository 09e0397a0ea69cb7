"""Metrics of runs as curves, thinned to what a screen can show, and the panels they are drawn in."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlagents.metrics import names as known_names
from rlagents.metrics.names import ALARMS, CONDITIONS, EVALUATION, ROLLOUT, STAGES, STEP, describes
from rlagents.report.propositions import COMPARED

MOST_POINTS = 1000
"""Of a curve; where there are more steps, a point is the mean of several."""

WARM_UP = "warm-up/"
EVALUATIONS = "evaluations/"
"""Before the name of what ``evaluations.jsonl`` calls as ``metrics.jsonl`` calls something else."""
_OF_BOTH = {entry.name for entry in STEP} & {entry.name for entry in EVALUATION}

_LEARNING = ("loss", "gradient_norm", "learning_rate", "entropy", "policy_ratio_max", "rollout_kl", "rollout_gap")
_LEARNING += ("members_kept", "tokens_kept", "tokens_trained", "updates_")
_ROLLOUT = ("turns", "uniform_groups", "garbled_turns", "tokens_sampled", "tokens_model", "tokens_total", "padding_")
_ROLLOUT += ("tasks", "tasks_skipped", f"{EVALUATIONS}tasks_skipped", "samples_per_task", "rollout/")

CONDITIONING = "Rewards that are asked for"
_CONDITIONING = ("reward_high", "reward_low", "reward_gap", "reward_std", "zero_variance_groups", "advantage_spread")
_CONDITIONING += ("entropy", *(one.measured for one in COMPARED))
"""First in the panel of runs that condition on a reward, though some of them have a panel of their own."""

_INTERVALS = ("success_low", "success_high", "success_low/", "success_high/")

_PANELS: Sequence[tuple[str, Sequence[str]]] = (
    ("Reward and success", ("reward", "outcome", "success", "success/", *_INTERVALS, "named/")),
    ("Learning", _LEARNING),
    (CONDITIONING, tuple(entry.name for entry in CONDITIONS)),
    ("Alarms", ("alarms", "alarms/")),
    ("Rollout", _ROLLOUT),
    ("Cost", ("seconds", "tokens_per_second", "seconds/", f"{EVALUATIONS}seconds")),
    ("Warm-up", (WARM_UP,)),
)
"""Titles, and the names (or beginnings of names, where they end in ``/`` or ``_``) that belong there."""


def bin_width(most_steps: int) -> int:
    """Steps of one point, so that no curve has more than ``MOST_POINTS``."""
    return max(1, math.ceil(most_steps / MOST_POINTS))


def curves(rows: Iterable[Mapping[str, Any]], width: int, prefix: str = "") -> dict[str, dict[str, list[Any]]]:
    """``{prefix + name: {"x": steps, "y": values}}``; a value that is not finite is None, a gap.

    Of ``width`` steps together, ``x`` is the first, ``y`` the mean of those that are finite, and ``low`` and ``high``
    their range.
    """
    found: dict[str, dict[int, list[float | None]]] = {}
    for row in rows:
        for name, value in row.items():
            if name != "step":
                found.setdefault(prefix + name, {}).setdefault(row["step"] // width * width, []).append(_finite(value))
    return {name: _curve(points, width) for name, points in sorted(found.items())}


def evaluation_curves(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, list[Any]]]:
    """As ``curves``, of every line: they are few, and each of them counts.

    The interval of a share of successes is the ``low`` and ``high`` of its curve, not curves of their own.
    """
    renamed = ({EVALUATIONS + name if name in _OF_BOTH else name: value for name, value in row.items()} for row in rows)
    found = {name: curve for name, curve in curves(renamed, 1).items() if name != "seconds_since_start"}
    for name in [name for name in found if name == "success" or name.startswith("success/")]:
        ends = [name.replace("success", f"success_{end}", 1) for end in ("low", "high")]
        # Where an evaluation has none, the band would not go with the steps of its curve.
        if all(found.get(end, {}).get("x") == found[name]["x"] for end in ends):
            found[name] |= {side: found.pop(end)["y"] for side, end in zip(("low", "high"), ends)}
    return found


def panels(names: Iterable[str]) -> list[dict[str, Any]]:
    """``{"title", "names", "bounds"}`` of each panel: the known ones, then a stage's or prefix's own, "Method" for bare
    names. ``bounds`` has, by name, what is drawn into the same chart as its bound."""
    names = list(names)
    shown: dict[str, list[str]] = {title: [] for title, _ in _PANELS}
    own: dict[str, list[str]] = {}
    for name in sorted(names):
        title = next((title for title, belongs in _PANELS if _belongs(name, belongs)), None)
        if title is not None:
            shown[title].append(name)
        else:
            prefix, slash, _ = name.partition("/")
            own.setdefault(prefix if slash else "Method", []).append(name)
    first = list(shown.items())
    # What is the method's own follows what every run has; cost and warm-up come last.
    ordered = [*first[:3], *sorted(own.items(), key=lambda item: item[0] != "Method"), *first[3:]]
    made = [{"title": title, "names": _sorted(title, found), "bounds": {}} for title, found in ordered if found]
    for panel in made:
        if panel["title"] == CONDITIONING:
            panel["bounds"] = {one.measured: one.bound for one in COMPARED if {one.measured, one.bound} <= set(names)}
            drawn = [name for name in panel["names"] if name not in panel["bounds"].values()]
            panel["names"] = list(dict.fromkeys([*(name for name in _CONDITIONING if name in names), *drawn]))
    return made


def meanings(names: Iterable[str]) -> dict[str, str]:
    """What is known of each name: its unit, and what it means."""
    of_all = [entry for part in (STEP, ROLLOUT, CONDITIONS, ALARMS, EVALUATION) for entry in part]
    own = {WARM_UP: known_names.WARM_UP, EVALUATIONS: EVALUATION}
    found = {}
    for name in names:
        prefix = next((prefix for prefix in own if name.startswith(prefix)), "")
        plain = name.removeprefix(prefix)
        known = next((entry for entry in own.get(prefix, of_all) if describes(entry, plain)), None)
        known = known or next((entry for entry in STAGES if describes(entry, plain, r"(.+/)?")), None)
        if known is not None:
            found[name] = f"{known.unit}, {known.meaning}" if known.unit else known.meaning
    return found


def _curve(points: Mapping[int, Sequence[float | None]], width: int) -> dict[str, list[Any]]:
    steps = sorted(points)
    finite = [[value for value in points[step] if value is not None] for step in steps]
    # Each divided before they are added: a sum of floats may be beyond all floats.
    means = [_short(sum(value / len(values) for value in values)) if values else None for values in finite]
    curve: dict[str, list[Any]] = {"x": steps, "y": means}
    if width > 1:
        curve["low"] = [_short(min(values)) if values else None for values in finite]
        curve["high"] = [_short(max(values)) if values else None for values in finite]
    return curve


def _belongs(name: str, belongs: Sequence[str]) -> bool:
    return any(name.startswith(part) if part[-1] in "/_" else name == part for part in belongs)


def _sorted(title: str, names: Sequence[str]) -> list[str]:
    order = next((belongs for known, belongs in _PANELS if known == title), ())
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))


def _finite(value: Any) -> float | None:
    number = float(value) if isinstance(value, (int, float)) else math.nan
    return number if math.isfinite(number) else None


def _short(value: float) -> float:
    """Six digits: no screen shows more."""
    return float(f"{value:.6g}")
