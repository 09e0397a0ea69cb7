"""What a person reads in the browser is right at the edges too: times that round up, names that JavaScript has itself,
numbers that no sum can hold, groups that nothing is learned from, alarms of several runs."""

import json

import numpy as np
import pytest

from rlagents.metrics import JsonLines
from rlagents.report.__main__ import main
from rlagents.trajectory_lines import group_line
from tests.report.synthetic import group, member_and_tokens, write_run

NAMES = ("__proto__", "constructor", "toString", "nonsense")
HUGE = 1.7e308
TIMES = {  # seconds of a phase: what is said of them
    1.04: "1.0 s",
    59.94: "59.9 s",
    59.96: "1 min 0 s",
    119.7: "2 min 0 s",
    125.2: "2 min 5 s",
    3599.4: "59 min 59 s",
    3599.7: "1 h 0 min",
    7190.0: "2 h 0 min",
    7260.0: "2 h 1 min",
}


@pytest.fixture
def opened(browser, tmp_path):
    """Makes a report of folders and opens it; in the end no error was told and nothing asked for."""
    pages = []

    def report(*folders, **options):
        assert main([*map(str, folders), f"--output={tmp_path / 'report.html'}"]) == 0
        page = browser.page((tmp_path / "report.html").as_uri(), **options)
        pages.append((page, page.__enter__()))
        return pages[-1][1]

    yield report
    for context, page in pages:
        errors = page.errors
        context.__exit__(None, None, None)
        assert errors == []


def bare(folder, rows):
    with JsonLines(folder / "metrics.jsonl") as lines:
        for step, row in enumerate(rows):
            lines.write({"step": step, **row})
    return folder


def test_durations_never_have_sixty_seconds_or_minutes(opened, tmp_path):
    page = opened(bare(tmp_path / "run", [{f"seconds/{number}": time for number, time in enumerate(TIMES)}]))
    page.go("#/cost", "td")
    cells = page.texts(".panel:first-of-type td")
    found = dict(zip(cells[::3], cells[1::3], strict=True))
    assert found == {str(number): said for number, said in enumerate(TIMES.values())}


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_page_is_unknown_whatever_its_name(name, opened, tmp_path):
    page = opened(write_run(tmp_path / "run", steps=2))
    page.go(f"#/{name}", "#main .note")
    assert page.texts("h1") == ["Not found"]
    assert page.texts("#main .note") == ["This report holds no such page."]


@pytest.mark.parametrize("address", ["#/task/0.5", "#/run/0/step/0/group/0/member/0.5"])
def test_half_a_task_or_member_is_no_page(address, opened, tmp_path):
    page = opened(write_run(tmp_path / "run", steps=2))
    page.go(address, "#main .note")
    assert "holds no such" in page.texts("#main .note")[0]


def test_names_of_metrics_and_keys_may_be_those_that_every_object_has(opened, tmp_path):
    with_names = bare(tmp_path / "a", [{name: 0.5, "reward": 1.0} for name in NAMES])
    without = bare(tmp_path / "b", [{"reward": 1.0}])
    (with_names / "config.json").write_text(json.dumps({name: 1 for name in NAMES}))
    (without / "config.json").write_text(json.dumps({"seed": 1}))
    page = opened(with_names, without)
    page.until("document.querySelector('.chart svg')")
    for name in NAMES:
        page.place(f"[data-name={name}]")
        page.until(f"document.querySelectorAll('[data-name={name}] path.line').length === 1")
    assert page.texts("[data-name=constructor] figcaption") == ["constructor"]  # no meaning is known
    page.go("#/config", "td code")
    rows = dict(zip(page.texts("td:first-child"), page.texts("td:nth-child(3)"), strict=True))
    assert rows == {**dict.fromkeys(NAMES, "absent"), "seed": "1"}


def test_text_that_turns_the_order_of_letters_round_is_spelled_out(opened, tmp_path):
    turned = "\u202egnp.exe\u202c"
    run = write_run(tmp_path / "run", steps=1)
    line = group(0, 0, turned, np.random.default_rng(0))
    for member in line["members"]:
        member["messages"][1]["content"] = turned
    (run / "trajectories.jsonl").write_text(json.dumps(line) + "\n")
    page = opened(run)
    page.go("#/run/0/step/0/group/0/member/0", ".message")
    shown = page.value("document.getElementById('main').innerText")
    assert "\u202e" not in shown
    assert shown.count("[U+202E]gnp.exe[U+202C]") >= 2


def test_numbers_at_the_end_of_what_a_float_holds_are_drawn(opened, tmp_path):
    rows = [{"reward": sign * HUGE, "loss": HUGE, "seconds/update": HUGE} for sign in (1, -1, 1)]
    folders = [bare(tmp_path / f"seed{seed}", rows) for seed in range(2)]
    for seed, folder in enumerate(folders):
        (folder / "config.json").write_text(json.dumps({"seed": seed}))
    draw = np.random.default_rng(0)
    line = group(0, 0, "t", draw)
    for member in line["members"]:
        member["reward"] = HUGE
    (folders[0] / "trajectories.jsonl").write_text(json.dumps(line) + "\n")
    page = opened(*folders)
    for name in ("reward", "loss"):
        page.place(f'.chart[data-name="{name}"]')
        page.until(f"document.querySelector('.chart[data-name={name}] path.line')")
        paths = page.value(
            f"[...document.querySelectorAll('.chart[data-name={name}] path')].map((e) => e.getAttribute('d')).join()"
        )
        assert paths.count("L") >= 2
        assert not any(word in paths for word in ("NaN", "Infinity"))
    page.place('.chart[data-name="reward"] svg')
    page.value("document.querySelector('.chart[data-name=reward] svg').focus()")
    page.until("document.querySelector('.chart[data-name=reward] .readout').textContent.includes('1.7e308')")
    for address, ready in (("#/cost", ".bar rect"), ("#/groups", "td.of-step a")):
        page.go(address, ready)
    assert page.texts("td.of-mean") == ["1.7e+308"]
    assert page.value("document.querySelectorAll('.damage').length") == 0


@pytest.mark.parametrize(
    ("rewards", "trained", "said"),
    [
        ((1.0, 1.0), True, "no advantage: all rewards of the group are equal"),
        ((1.0, 0.0), False, "no advantage: no token of the group is trained"),
        ((1.0, 0.0), True, "no advantage in this group"),
    ],
)
def test_the_legend_says_why_no_token_is_tinted(rewards, trained, said, opened, tmp_path):
    members, tokens = zip(
        *(member_and_tokens(n, np.random.default_rng(n), good=bool(r)) for n, r in enumerate(rewards))
    )
    for columns in tokens:
        columns["advantage"] = np.zeros_like(columns["advantage"])
        columns["mask"] = columns["mask"] & trained
    folder = write_run(tmp_path / "run", steps=1)
    (folder / "trajectories.jsonl").write_text(json.dumps(group_line(0, members, tokens)) + "\n")
    page = opened(folder)
    page.go("#/run/0/step/0/group/0/member/0", ".tokens .token")
    assert page.texts(".tints")[0].startswith(said)
    assert "0…" not in page.texts(".tints")[0]
    assert page.value("document.querySelectorAll('.tints .plus6, .tints .minus6').length") == 0


def test_a_mark_of_an_alarm_says_which_run_raised_it(opened, tmp_path):
    folders = [write_run(tmp_path / f"seed{seed}", seed=seed, steps=30) for seed in range(2)]
    with JsonLines(folders[1] / "alarms.jsonl", first_step=10) as lines:
        lines.write({"step": 20, "alarm": "kl_exploded", "value": 1, "threshold": 0.5, "message": "lower the rate"})
    page = opened(*folders)
    chart = '.chart[data-name="reward"]'
    page.until(f"document.querySelector('{chart} svg')")
    titles = page.value(f"[...document.querySelectorAll('{chart} .mark title')].map((e) => e.textContent)")
    assert titles == [
        "seed0: entropy_collapsed at step 9",
        "seed1: entropy_collapsed at step 9",
        "seed1: kl_exploded at step 20",
    ]
    # Steps of the warm-up are counted anew.
    page.place('.chart[data-name="warm-up/loss"]')
    page.until("document.querySelector('.chart[data-name=\"warm-up/loss\"] path.line')")
    assert page.value("document.querySelectorAll('.chart[data-name=\"warm-up/loss\"] .mark').length") == 0
    # By keys, as by touch: what is at the cursor is told in words.
    page.value(f"document.querySelector('{chart} svg').focus()")
    page.press(*["ArrowLeft"] * 9)
    page.until(f"document.querySelector('{chart} .readout').textContent.startsWith('step 20')")
    assert page.texts(f"{chart} .readout .flag") == ["seed1: kl_exploded at step 20"]
    page.press("ArrowLeft")
    assert page.texts(f"{chart} .readout .flag") == []
