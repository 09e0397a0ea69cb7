"""The HTML file: styles, program and data in one document that asks nobody for anything.

What is not ours (texts of models and tools, names of tasks) is in the document only as JSON inside elements that no
browser runs, with every ``<`` written as an escape. A content-security policy lets nothing run or load but the one
style and the one script whose hashes it names.
"""

import base64
import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TextIO

from rlagents.report import configs
from rlagents.report.correlation import correlation
from rlagents.report.cost import seconds_by_phase
from rlagents.report.curves import WARM_UP, bin_width, curves, evaluation_curves, meanings, panels
from rlagents.report.pages import Pages, fitting_pages
from rlagents.report.propositions import propositions
from rlagents.report.reading import HELD_OUT, Run

MARK = "<!-- rlagents report -->"
"""Begins every report, so that nothing else is taken for one."""

STYLES = ("colours", "layout", "table", "chart", "conversation", "tokens", "glance")
SCRIPTS = (
    "dom",
    "scroll",
    "numbers",
    "data",
    "route",
    "chart",
    "curves",
    "analysis",
    "cost",
    "alarms",
    "config",
    "search",
)
SCRIPTS += ("groups", "tokens", "conversation", "glance", "trajectory", "task", "keyboard", "main")


def check_output(output: Path) -> None:
    """Raise ValueError where ``output`` is anything but an earlier report, which alone is ever overwritten."""
    if output.is_dir() or not Path(os.path.realpath(output)).parent.is_dir():
        raise ValueError(f"{output} cannot be written; give a file in a folder that exists as --output")
    if os.path.islink(os.path.realpath(output)):
        raise ValueError(f"{output} is a link that leads to itself; give another --output")
    if not output.exists():
        return
    if not output.is_file():
        raise ValueError(f"{output} is no file; give another --output")
    try:
        with output.open("rb") as file:
            begins = file.read(200)
    except OSError as error:
        raise ValueError(f"{output} cannot be read: {error.strerror or error}; give another --output") from error
    if MARK.encode() not in begins:
        raise ValueError(f"{output} is there and is no report; give another --output")


def write_report(output: Path, runs: Sequence[Run], *, max_bytes: int) -> str:
    """Write the report on ``runs`` to ``output`` at once, and return what is in it, in words.

    Pages of trajectories take at most ``max_bytes``: where there are more, groups evenly spread over each run are kept.

    Raises ValueError where ``output`` cannot be written, or has come to be something else than a report; and
    ``reading.NoRunError``.
    """
    pages, damaged = fitting_pages(runs, max_bytes)
    for number, files in damaged.items():
        runs[number].damaged.update(files)
    total, shown = sum(sum(run.counts.values()) for run in runs), len(pages.index["run"])
    index = _index(runs, pages, total)
    try:
        _write_at_once(output, lambda: _parts(index, pages))
    except OSError as error:
        remedy = "give a file in a folder that takes it, on a disk with room, as --output"
        raise ValueError(f"{output} cannot be written: {error.strerror or error}; {remedy}") from error
    left_out = total - shown - sum(map(len, damaged.values()))
    lines = sum(sum(run.damaged.values()) for run in runs)
    return (
        f"{_count(len(runs), 'run')}, {_count(shown, 'group')} of {_count(len(pages.tasks), 'task')}"
        + (f", {_count(left_out, 'group')} left out (--max_megabytes)" if left_out else "")
        + (f", {_count(lines, 'damaged line')} skipped" if lines else "")
    )


def _write_at_once(output: Path, parts: Callable[[], Iterator[str]]) -> None:
    """Write to a file that was not there, and put it in place of ``output`` (of what it links to) once it is whole."""
    place = Path(os.path.realpath(output))
    unfinished, file = _unfinished(place)
    try:
        with file:
            for part in parts():
                file.write(part)
        check_output(output)  # it may have come to be while the report was made
        os.replace(unfinished, place)
    finally:
        unfinished.unlink(missing_ok=True)


def _unfinished(place: Path) -> tuple[Path, TextIO]:
    """A new file beside ``place``, open: one that is there, whoever made it, is left alone."""
    for number in itertools.count():
        path = place.with_name(f"report-{number}.unfinished")
        with contextlib.suppress(FileExistsError):
            return path, path.open("x", encoding="utf-8")
    raise AssertionError("there is always a next number")


def _index(runs: Sequence[Run], pages: Pages, total: int) -> dict[str, Any]:
    flat = [configs.leaves(run.config) for run in runs]
    different, sets = configs.differing(flat), configs.sets(flat)
    width = bin_width(max(max(_steps(run.metrics), _steps(run.warm_up)) for run in runs))
    drawn = [_curves(run, width) for run in runs]
    names = {name for of_run in drawn for name in of_run}
    return {
        "runs": [
            {
                "name": run.name,
                "config": config,
                "curves": of_run,
                "seconds": seconds_by_phase(run),
                "entropy_reward": correlation(run.metrics, "entropy", "reward"),
                "propositions": propositions(run.metrics),
                "steps": _steps(run.metrics),
                "planned": _planned(run),
                "alarms": [_alarm(row) for row in run.alarms],
                "damaged": dict(sorted(run.damaged.items())),
            }
            for run, config, of_run in zip(runs, flat, drawn)
        ],
        "sets": [
            {"label": configs.label(flat[members[0]], different, _set_name(runs, members)), "runs": members}
            for members in sets
        ],
        "different": different,
        "panels": panels(names),
        "meanings": meanings(sorted(names)),
        "width": width,
        "groups": pages.index,
        "groups_in_all": total,
        "tasks": pages.tasks,
        "pages": {"texts": len(pages.texts), "tokens": len(pages.tokens)},
        "held_out": HELD_OUT,
        "warm_up": WARM_UP,
    }


def _steps(rows: Sequence[Mapping[str, Any]]) -> int:
    return rows[-1]["step"] + 1 if rows else 0


def _curves(run: Run, width: int) -> dict[str, Any]:
    return curves(run.metrics, width) | evaluation_curves(run.evaluations) | curves(run.warm_up, width, WARM_UP)


def _planned(run: Run) -> int | None:
    steps = run.config.get("rl", {}).get("steps") if isinstance(run.config.get("rl"), dict) else None
    return steps if isinstance(steps, int) else None


def _alarm(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row.get(name) for name in ("step", "alarm", "value", "threshold", "message")}


def _set_name(runs: Sequence[Run], members: Sequence[int]) -> str:
    return runs[members[0]].name if len(members) == 1 else f"{len(members)} seeds"


def _parts(index: Mapping[str, Any], pages: Pages) -> Iterator[str]:
    style = "\n".join(_asset(f"{name}.css") for name in STYLES)
    script = '"use strict";\n(() => {\n' + "\n".join(_asset(f"{name}.js") for name in SCRIPTS) + "\n})();\n"
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src 'sha256-{_digest(style)}'",
            f"script-src 'sha256-{_digest(script)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    head = _asset("page.html").replace("{policy}", policy)
    before, after = head.split("{style}")
    yield f"<!doctype html>\n{MARK}\n{before}"
    yield f"<style>{style}</style>"
    yield after
    yield _data("index", json.dumps(index, separators=(",", ":"), allow_nan=False))
    yield f"<script>{script}</script>\n"
    # The program runs before these are there, and waits for the one that it is asked for.
    for name, contents in (("text", pages.texts), ("tokens", pages.tokens)):
        for number, page in enumerate(contents):
            yield _data(f"{name}-{number}", page)
    yield "</body>\n</html>\n"


def _count(number: int, one: str) -> str:
    return f"{number} {one}{'' if number == 1 else 's'}"


def _data(name: str, text: str) -> str:
    """An element that holds data. Nothing in it can end it: no ``<`` is left."""
    escaped = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json" id="{name}">{escaped}</script>\n'


def _asset(name: str) -> str:
    return resources.files("rlagents.report").joinpath("assets", name).read_text(encoding="utf-8").rstrip("\n")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
