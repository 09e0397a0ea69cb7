"""A trajectory at a glance: what the verdict and the line of each turn say is what was logged."""

import json

import numpy as np
import pytest

from rlagents.report.__main__ import main
from rlagents.trajectory_lines import group_line
from tests.report.synthetic import HOSTILE_TOOL, HOSTILE_TURN, member_and_tokens, write_run

PAGE = "#/run/0/step/0/group/0/member/{}"


def made(number, **options):
    return member_and_tokens(number, np.random.default_rng(number), **options)


def write_group(folder, made):
    write_run(folder, steps=1)
    members, tokens = zip(*made)
    (folder / "trajectories.jsonl").write_text(json.dumps(group_line(0, members, tokens)) + "\n")
    assert main([str(folder)]) == 0
    return (folder / "report.html").as_uri()


def verdict(page, member):
    page.go(PAGE.format(member), ".verdict")
    page.until(f"document.title.includes('member {member}')")
    return page.texts(".verdict")[0]


def said_of(tokens, wanted):
    """``advantages, ratio``: their range as the page writes it, and the geometric mean, of the trained tokens."""
    advantages, ratios = (np.float64(np.float16(tokens[name])) for name in ("advantage", "ratio"))
    chosen = np.asarray(tokens["mask"], bool) & wanted(advantages)
    low, high = (f"{value:+.4g}" for value in (advantages[chosen].min(), advantages[chosen].max()))
    ratio = float(np.exp(np.log(ratios[chosen]).mean()))
    return int(chosen.sum()), (low if low == high else f"{low} to {high}"), f"{ratio:.4g}"


def test_the_verdict_tells_how_it_did_and_what_it_was_taught(browser, tmp_path):
    group = [made(0, good=True), made(1, good=False), made(2, good=True), made(3, good=False)]
    # Of the last, some tokens are encouraged and some say nothing.
    columns = group[3][1]
    columns["advantage"][:5], columns["advantage"][5:10] = 0.5, 0.0
    with browser.page(write_group(tmp_path / "run", group)) as page:
        many, advantages, ratio = said_of(group[0][1], lambda a: a > 0)
        assert verdict(page, 0) == (
            f"Reward 1, above its group's mean of 0.5. {many} tokens pushed up (advantage {advantages}): "
            f"the update made each {ratio} times as likely (geometric mean)."
        )
        assert "plus" in page.value("document.querySelector('.verdict .token').className")
        many, advantages, ratio = said_of(group[1][1], lambda a: a < 0)
        assert f"{many} tokens pushed down (advantage {advantages}): the update made each {ratio}" in verdict(page, 1)
        assert "below its group's mean of 0.5" in verdict(page, 1)
        mixed = verdict(page, 3)
        for way, wanted in (("up", lambda a: a > 0), ("down", lambda a: a < 0)):
            many, advantages, ratio = said_of(columns, wanted)
            assert f"{many} tokens pushed {way} (advantage {advantages}): the update made each {ratio}" in mixed
        assert "5 trained tokens without an advantage: nothing is taught there." in mixed
        assert page.errors == []


def test_the_verdict_on_what_is_lost_alike_or_not_trained(browser, tmp_path):
    group = [made(0, good=True), made(1, good=True), made(2, good=True)]
    group[0][0].update(lost="its worker died", reward=None)
    group[1][1]["mask"] = np.zeros_like(group[1][1]["mask"])
    with browser.page(write_group(tmp_path / "run", group)) as page:
        assert verdict(page, 0) == "Lost to the infrastructure: neither scored nor learned from."
        assert verdict(page, 1) == "Reward 1, like all of its group. No token of it is trained."
        assert verdict(page, 2).startswith("Reward 1, like all of its group. 40 tokens pushed up (advantage +1)")
        assert page.errors == []


def test_every_turn_has_a_line_that_leads_to_it(browser, tmp_path):
    group = [made(0, good=False, hostile=True), made(1, good=True)]
    group[0][0].update(void=[False, True, False], stop_reasons=["stop_token", "stop_string", "budget"])
    messages = group[0][0]["messages"]
    messages.insert(4, {"role": "tool", "content": "second answer"})
    messages.insert(5, {"role": "user", "content": "and now the other one"})
    with browser.page(write_group(tmp_path / "run", group)) as page:
        page.go(PAGE.format(0), ".outline li")
        assert page.texts(".outline .who") == ["user", "turn 1", "user", "turn 2", "turn 3"]
        begins = page.texts(".outline .begins")
        assert begins[0] == "Please move the report and tell me its size."
        assert HOSTILE_TURN in begins[1]
        assert begins[2] == HOSTILE_TOOL
        assert page.texts(".outline .came")[0].endswith(" and 1 more")
        assert begins[3] == "and now the other one"
        marks = page.texts(".outline .marks")
        assert marks[0].startswith("✗ 1 of 1 call failed")
        assert "✗ void" in marks[1]
        assert "✗ cut by budget" in marks[2]
        # Advantages of a failure grow by 0.4 a turn, from -0.7.
        advantages = [float(mark.rsplit("advantage ", 1)[1].split(",")[0]) for mark in marks]
        assert advantages == pytest.approx([-0.7, -0.3, 0.1], abs=1e-3)
        page.click(".outline li:nth-child(4) button")
        page.until("document.activeElement.closest('[data-turn]')?.dataset.turn === '1'")
        assert page.value("document.activeElement.getBoundingClientRect().top") < 900
        assert page.value("document.querySelectorAll('.outline img, .outline script, .outline b').length") == 0
        assert page.errors == []


def test_a_conversation_of_many_turns_is_outlined_a_part_at_a_time(browser, tmp_path):
    with browser.page(write_group(tmp_path / "run", [made(n, turns=100, tokens_a_turn=5) for n in range(2)])) as page:
        page.go(PAGE.format(0), ".outline .line")
        assert page.value("document.querySelectorAll('.outline .line').length") == 59  # and what was asked
        page.click(".outline li:last-child button")
        page.until("document.querySelectorAll('.outline .line').length === 100")
        assert page.texts(".outline li:last-child .who") == ["turn 100"]


@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_the_first_screen_has_the_verdict_and_the_first_turn(dark, browser, tmp_path):
    with browser.page(write_group(tmp_path / "run", [made(n) for n in range(8)]), size="phone", dark=dark) as page:
        page.go(PAGE.format(1), ".outline .line")
        for selector in (".verdict", ".outline .line"):
            bottom = page.value(f"document.querySelector('{selector}').getBoundingClientRect().bottom")
            assert bottom <= page.value("innerHeight"), selector
        # The tabs of members have the colour of what each is taught.
        page.until("document.querySelectorAll('.tabs .plus6, .tabs .minus6, .tabs .minus1').length > 0")
