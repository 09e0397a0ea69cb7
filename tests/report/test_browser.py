"""The report in a browser: drawn, walked through, searched; what models and tools wrote does nothing; nothing is asked
for."""

from pathlib import Path
from urllib.parse import unquote, urlparse

from tests.report.conftest import FIRST, focused
from tests.report.synthetic import HOSTILE_TOOL


def test_curves_are_drawn_with_bands_gaps_and_marks(page):
    page.until("document.querySelectorAll('.chart svg').length >= 3")
    assert page.texts("h2")[:3] == ["Reward and success", "Learning", "Method"]
    reward = '.chart[data-name="reward"]'
    paths = page.value(f"[...document.querySelectorAll('{reward} path.line')].map((e) => e.getAttribute('d'))")
    assert len(paths) == 2
    assert all(path.count("L") == 29 for path in paths)
    assert page.value(f"document.querySelectorAll('{reward} path.band').length") == 1
    assert page.value(f"document.querySelectorAll('{reward} line.mark').length") == 2
    page.hover(reward)
    page.until(f"document.querySelector('{reward} .readout').textContent.startsWith('step ')")
    # Not a number at step 7.
    page.place('.chart[data-name="gradient_norm"]')
    page.until("document.querySelector('.chart[data-name=\"gradient_norm\"] path.line')")
    path = page.value("document.querySelector('.chart[data-name=\"gradient_norm\"] path.line').getAttribute('d')")
    assert (path.count("M"), path.count("L")) == (2, 27)


def test_seeds_are_a_band_or_lines_of_their_own(page):
    select = "document.querySelector('.choice select')"
    lines = "document.querySelectorAll('.chart[data-name=\"reward\"] path.line').length"
    page.until(f"{lines} === 2")
    page.value(f"{select}.value = 'each'")
    page.value(f"{select}.dispatchEvent(new Event('change'))")
    page.until(f"{lines} === 3")


def test_charts_come_into_being_when_they_are_looked_at(page):
    drawn = "document.querySelectorAll('.chart svg').length"
    page.until(f"{drawn} > 0")
    assert page.value(drawn) < page.value("document.querySelectorAll('.chart').length")
    page.value("scrollTo(0, document.body.scrollHeight)")
    page.until("[...document.querySelectorAll('.chart')].pop().querySelector('svg')")


def test_a_trajectory_is_opened_from_the_table_and_a_token_told_under_the_pointer(page):
    page.go("#/groups", "td.of-step a")
    page.click("tbody tr:first-child td.of-step a")
    page.until("document.querySelectorAll('.tokens').length === 3")
    assert page.value("location.hash") == FIRST
    assert page.texts(".message h3") == ["system", "user", "assistant", "tool", "assistant", "tool", "assistant"]
    facts = dict(zip(page.texts(".facts dt"), page.texts(".facts dd"), strict=True))
    assert facts["official"] in "01"
    assert facts["valid"] == "yes"
    assert facts["tokens"] == "prompt 300, model 60, tool 8, forced 0"
    assert page.value("document.querySelectorAll('.token.plus6, .token.minus6, .token.minus1').length") > 0
    assert page.value("document.getElementById('tip').hidden")
    page.hover(".tokens .token:nth-child(3)")
    page.until("!document.getElementById('tip').hidden")
    told = dict(zip(page.texts("#tip dt"), page.texts("#tip dd"), strict=True))
    assert told.keys() == {"token", "advantage", "log-prob", "entropy", "ratio", "mask"}
    assert told["mask"] == "trained"
    tint = page.value("document.querySelector('.tokens .token:nth-child(3)').className")
    assert ("plus" if float(told["advantage"]) > 0 else "minus") in tint
    assert abs(float(told["ratio"]) - 1) < 0.2
    assert float(told["log-prob"].split()[0]) <= 0
    assert told["entropy"].endswith(" nats")
    page.hover("h1")
    page.until("document.getElementById('tip').hidden")


def test_tokens_that_are_not_trained_are_told_apart(page):
    page.go("#/run/0/step/1/group/3/member/2", ".tokens .token")
    turns = page.value(
        "[...document.querySelectorAll('.tokens')].map((t) => [...t.children].every((e) => e.matches('.unmasked')))"
    )
    assert turns == [False, True, False]
    page.hover(".message:nth-child(5) .token")
    page.until("document.querySelector('#tip dd:nth-of-type(6)')?.textContent === 'left out'")


def test_what_models_and_tools_wrote_is_text_and_does_nothing(page):
    page.go(FIRST, ".tokens .token")
    assert HOSTILE_TOOL in page.texts(".message.tool .text")
    assert any("<script>" in text for text in page.texts(".tokens .token"))
    for address in (FIRST, "#/task/0", "#/groups?q=onerror"):
        page.go(address, "td, .message")
        page.until("!document.querySelector('[aria-busy]')")
        assert page.value("document.querySelectorAll('#main img, #main script, #main b, #main iframe').length") == 0
        assert page.value("document.title") != "owned"


def test_search_finds_messages_and_tasks(page):
    page.go("#/groups", "td.of-step a")
    page.press("/")
    assert focused(page, "type") == "search"
    page.type("ONERROR=")
    page.until("document.querySelector('[role=status]').textContent.startsWith('3 groups with')")
    page.until("document.querySelectorAll('tbody tr').length === 3")
    assert set(page.texts("td.of-step")) == {"0"}
    assert "q=ONERROR" in page.value("location.hash")
    page.value("document.querySelector('input[type=search]').select()")
    page.type("held-out-2")
    page.until("document.querySelectorAll('tbody tr').length === 9")
    assert set(page.texts("td.of-task")) == {"held-out-2"}
    page.value("document.querySelector('input[type=search]').select()")
    page.type("nobody said this")
    page.until("document.querySelector('[role=status]').textContent.startsWith('0 groups')")
    page.until("document.querySelectorAll('tbody tr').length === 0")


def test_columns_sort_both_ways(page):
    page.go("#/groups", "td.of-step a")
    values = "[...document.querySelectorAll('td.of-{}')].map((e) => parseFloat(e.textContent))"
    for name in ("mean", "length", "step"):
        page.click(f'th[data-name="{name}"] button')
        for order in ("ascending", "descending"):
            page.until(f"document.querySelector('th[data-name=\"{name}\"]').getAttribute('aria-sort') === '{order}'")
            found = page.value(values.format(name))
            assert len(found) == 50
            assert found == sorted(found, reverse=order == "descending")
            if order == "ascending":
                page.press("Enter")  # the head has kept the focus
    assert page.value("document.querySelectorAll('th[aria-sort]').length") == 1


def test_tasks_sort_as_people_count(page):
    page.go("#/groups?sort=task&down=0&phase=training&run=0", "td.of-task")
    found = [int(text.rsplit("-", 1)[1]) for text in page.texts("td.of-task")]
    assert found == sorted(found)
    assert found[-1] > 9


def test_pages_of_the_table_are_turned(page):
    page.go("#/groups", "td.of-step a")
    assert page.value("document.querySelectorAll('tbody tr').length") == 50
    first = page.texts("tbody tr:first-child td")
    page.click('[data-turn="1"]')
    page.until("document.querySelector('.pager span').textContent.startsWith('page 2 of 5')")
    assert page.texts("tbody tr:first-child td") != first


def test_one_task_is_compared_across_steps(page):
    held_out = "#/task/" + str(
        page.value("[...JSON.parse(document.getElementById('index').textContent).tasks].indexOf('held-out-1')")
    )
    page.go(held_out, ".side-by-side .message")
    assert page.texts("h1") == ["held-out-1"]
    # Three evaluations of two members, by three runs.
    assert page.texts("tbody tr td:first-child") == [*["0"] * 6, *["15"] * 6, *["30"] * 6]
    page.until("document.querySelectorAll('.side-by-side h2').length === 2")
    assert page.texts(".side-by-side h2") == ["held-out after 0, member 0", "held-out after 30, member 1"]
    page.click('button[data-side="left"][data-n="7"]')
    page.until("document.querySelector('.side-by-side h2').textContent === 'held-out after 15, member 1'")
    assert "left=7&right=17" in page.value("location.hash")


def test_configs_and_their_differences_are_shown(page):
    page.go("#/config", "td code")
    assert page.texts("section:first-of-type td") == ["method.clip_low", "0.2", "0.2", "0.3", "seed", "0", "1", "0"]
    page.value("document.querySelector('input[type=search]').focus()")
    page.type("learning")
    page.until("document.querySelectorAll('section td').length === 2")
    assert page.texts("section td") == ["rl.learning_rate", "0.0004"]


def test_alarms_and_cost_are_shown(page):
    page.go("#/alarms", "td .warning")
    assert page.texts("tbody tr:first-child td")[:4] == ["seed0", "9", "entropy_collapsed", "0.04"]
    page.click("tbody tr:first-child a")
    page.until("location.hash.startsWith('#/run/0/step/9/')")
    page.go("#/cost", ".bar rect")
    assert page.texts(".panel:first-of-type td:first-child") == [
        "rollout",
        "update",
        "elsewhere",
        "evaluation",
        "warm-up",
        "log",
    ]


def test_an_address_that_leads_nowhere_says_so(page):
    for address in ("#/run/9/step/1/group/1/member/1", "#/run/0/step/0/group/0/member/99", "#/task/999", "#/task/x"):
        page.go(address, ".note")
        assert "holds no such" in page.texts("#main .note")[0]


def test_a_damaged_page_is_told_and_the_rest_still_opens(browser, url, tmp_path):
    text = Path(unquote(urlparse(url).path)).read_text()
    place = text.index('id="tokens-0">') + 200
    (tmp_path / "damaged.html").write_text(text[:place] + "!" + text[place + 1 :])
    with browser.page((tmp_path / "damaged.html").as_uri()) as page:
        page.go(FIRST, "#main .warning")
        assert "cannot be opened" in page.texts("#main .warning")[-1]
        page.go("#/groups", "td.of-step a")
