"""How long a large report takes to open: 10,000 trajectories of 500 model tokens.

    python -m tests.report.large [--trajectories N] [--tokens N]

Prints the file's size, and seconds from asking for the file until the first view is drawn, until the table of groups
is, until a trajectory on the last page is open, and until a search through all texts has ended.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from rlagents.metrics import JsonLines
from rlagents.report.__main__ import main as report
from tests.browser import Browser, browser_path
from tests.report.synthetic import group, write_run

MEMBERS = 8


def write_large(folder, *, trajectories, tokens, turns=5):
    """A run that logged so many trajectories, of so many model tokens each."""
    write_run(folder, steps=20, groups=1, hostile=False)
    draw, groups = np.random.default_rng(0), trajectories // MEMBERS
    with JsonLines(folder / "trajectories.jsonl", first_step=0) as lines:
        for number in range(groups):
            lines.write(
                group(
                    number,
                    number,
                    f"task-{number % 97}",
                    draw,
                    members=MEMBERS,
                    turns=turns,
                    tokens_a_turn=tokens // turns,
                )
            )
    return groups


def opening(browser, url, last):
    """Seconds until each stage, and how many elements the page then has."""
    start = time.perf_counter()
    with browser.page(url, ready="document.querySelector('.chart svg path.line')") as page:
        seconds = {"first view": time.perf_counter() - start}
        elements = [page.value("document.querySelectorAll('body *').length")]
        page.go("#/groups?sort=step&down=1", "td.of-step a")
        seconds["table of groups"] = time.perf_counter() - start
        elements.append(page.value("document.querySelectorAll('#main *').length"))
        page.go(f"#/run/0/step/{last}/group/{last}/member/3", ".tokens .token")
        seconds["a trajectory"] = time.perf_counter() - start
        elements.append(page.value("document.querySelectorAll('#main *').length"))
        begin = time.perf_counter()
        page.go("#/groups?q=nobody+said+this", "[role=status]")
        page.until(
            "document.querySelector('[role=status]').textContent.startsWith('0 groups') "
            "&& !document.querySelector('[role=status]').textContent.includes('searched')"
        )
        seconds["a search alone"] = time.perf_counter() - begin
        assert page.errors == []
    return seconds, elements


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trajectories", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=500)
    options = parser.parse_args()
    path = browser_path()
    if path is None:
        raise SystemExit("there is no browser: run launch/fetch_browser.sh, or set RLAGENTS_BROWSER")
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        groups = write_large(run, trajectories=options.trajectories, tokens=options.tokens)
        logged = sum(file.stat().st_size for file in run.glob("trajectories*.jsonl"))
        start = time.perf_counter()
        assert report([str(run), "--max_megabytes=1000"]) == 0
        print(f"log {logged / 1e6:.1f} MB, report made in {time.perf_counter() - start:.1f} s")
        browser = Browser(path)
        try:
            for _ in range(3):
                seconds, _ = opening(browser, (run / "report.html").as_uri(), groups - 1)
                print(", ".join(f"{what} {value:.2f} s" for what, value in seconds.items()))
        finally:
            browser.close()


if __name__ == "__main__":
    main()
