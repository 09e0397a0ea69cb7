"""What a run says about conditioning on a reward, and how entropy and reward go together, in the browser."""

import pytest

from rlagents.metrics import read_metrics
from rlagents.report.__main__ import main
from rlagents.report.correlation import correlation
from rlagents.report.propositions import propositions
from tests.report.synthetic import write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("asked")
    folders = [
        write_run(root / "asked", steps=30, conditioned=True, changes={"method.goals": 0.5}),
        write_run(root / "plain", steps=30),
    ]
    assert main([*map(str, folders), f"--output={root / 'report.html'}"]) == 0
    return folders


@pytest.fixture
def page(browser, runs):
    with browser.page((runs[0].parent / "report.html").as_uri()) as page:
        yield page
        assert page.errors == []


def shown(value):
    return f"{value:.4g}"


def test_what_was_measured_is_drawn_with_its_bound(page):
    assert "Rewards that are asked for" in page.texts("h2")
    for name in ("mixed_variance", "peaked_identical"):
        page.place(f'.chart[data-name="{name}"]')
        page.until(f"document.querySelectorAll('.chart[data-name=\"{name}\"] path.line').length === 2")
        dashes = page.value(
            f"[...document.querySelectorAll('.chart[data-name=\"{name}\"] path.line')]"
            ".map((e) => getComputedStyle(e).strokeDasharray)"
        )
        assert dashes[0] == "none"
        assert dashes[1] != "none"
        assert page.value(f"document.querySelectorAll('.chart[data-name=\"{name}_bound\"]').length") == 0
        page.value(f"document.querySelector('.chart[data-name=\"{name}\"] svg').focus()")
        page.until(f"document.querySelector('.chart[data-name=\"{name}\"] .readout').textContent.includes('bound ')")


def test_both_sides_of_the_propositions_are_told_over_the_whole_run(page, runs):
    (collapse, variance) = propositions(read_metrics(runs[0] / "metrics.jsonl"))
    rows = page.texts("#propositions td")
    assert len(rows) == 2 * 7
    for row, said in ((rows[:7], collapse), (rows[7:], variance)):
        assert row[:4] == ["asked", said["title"], shown(said["measured"]), shown(said["bound"])]
        assert [float(part) for part in row[4].split(" ± ")] == pytest.approx([said["margin"], said["error"]], rel=1e-2)
        assert row[5:] == [str(said["groups"]), str(said["steps"])]
    assert (collapse["steps"], collapse["groups"]) == (20, 30)


def test_the_correlation_of_entropy_and_reward_is_told_with_its_number_of_steps(page, runs):
    cells = page.texts("#entropy-reward td")
    assert len(cells) == 2 * 4
    for row, folder in ((cells[:4], runs[0]), (cells[4:], runs[1])):
        found = correlation(read_metrics(folder / "metrics.jsonl"), "entropy", "reward")
        assert row == [folder.name, shown(found["pearson"]), shown(found["spearman"]), "30"]
        assert found["pearson"] < -0.5  # the synthetic runs are of that kind


def test_the_interval_of_a_success_is_its_band(page):
    page.until("document.querySelectorAll('.chart[data-name=\"success\"] path.band').length === 2")
    assert page.value("document.querySelectorAll('.chart[data-name=\"success_low\"]').length") == 0
