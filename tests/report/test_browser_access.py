"""The report by keys, on a phone, in the dark, and with more trajectories than a page could hold."""

import itertools

import pytest

from rlagents.report.__main__ import main
from tests.browser import SIZES
from tests.report.conftest import FIRST, focused
from tests.report.large import opening, write_large

VIEWS = {
    "#/": ".chart svg path.line",
    "#/cost": ".bar rect",
    "#/alarms": "td .warning",
    "#/config": "td code",
    "#/groups": "td.of-step a",
    FIRST: ".tokens .token",
    "#/task/0": ".side-by-side .message",
}


def test_all_of_it_can_be_done_by_keys(page):
    page.press("Tab")
    assert focused(page) == "Skip to the content"
    page.press("Enter")
    assert focused(page, "id") == "main"
    page.press("g")
    page.until("location.hash.startsWith('#/groups') && document.querySelector('td.of-step a')")
    rows = []
    for _ in range(2):
        page.press("j")
        rows.append(
            page.value(
                "[...document.querySelectorAll('tbody tr')].findIndex((r) => r.contains(document.activeElement))"
            )
        )
    page.press("k")
    assert rows == [0, 1]
    page.press("Enter")
    opened = "document.title.endsWith('member {} · rlagents report') && document.querySelector('.tokens .token')"
    page.until(opened.format(0))
    page.press("j")
    page.until(opened.format(1))
    page.press("k")
    page.until(opened.format(0))
    page.value("document.querySelector('.tokens .token').focus()")
    walked = [focused(page, "dataset.i")]
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        page.press(key)
        walked.append(focused(page, "dataset.i"))
    assert walked == ["0", "1", "2", "1"]
    assert not page.value("document.getElementById('tip').hidden")
    top = page.value("document.activeElement.getBoundingClientRect().top")
    page.press("ArrowDown")
    assert page.value("document.activeElement.getBoundingClientRect().top") >= top
    page.press("Escape")
    assert page.value("document.getElementById('tip').hidden")
    page.press("Escape")
    page.until("location.hash.startsWith('#/groups')")
    page.press("?")
    page.until("document.querySelector('dialog').open")
    page.press("Escape")
    page.until("!document.querySelector('dialog').open")
    page.press("c")
    page.until("location.hash === '#/'")


def test_arrows_move_along_a_chart(page):
    chart = '.chart[data-name="reward"]'
    page.until(f"document.querySelector('{chart} svg')")
    page.value(f"document.querySelector('{chart} svg').focus()")
    page.press("ArrowLeft")
    page.until(f"document.querySelector('{chart} .readout').textContent.startsWith('step 28')")


def tap(page, selector):
    x, y = page.place(selector)
    for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
        page.send("Input.dispatchTouchEvent", type=kind, touchPoints=points)


def swipe_to_the_end(page, selector, box):
    _, y = page.place(selector)
    while page.value(f"{box}.scrollWidth - {box}.clientWidth - {box}.scrollLeft > 1"):
        before = page.value(f"{box}.scrollLeft")
        for kind, x in (("touchStart", 300), *(("touchMove", x) for x in range(300, 20, -20)), ("touchEnd", None)):
            points = [] if x is None else [{"x": x, "y": y}]
            page.send("Input.dispatchTouchEvent", type=kind, touchPoints=points)
        page.until(f"{box}.scrollLeft > {before}")


@pytest.mark.parametrize("way", ["tap", "key"])
def test_the_meaning_of_a_metric_is_reached_without_a_mouse(way, browser, url):
    chart = '.chart[data-name="entropy"]'
    meaning = "nats, of the policy, mean over trained tokens"
    with browser.page(url, size="phone") as page:
        page.send("Emulation.setTouchEmulationEnabled", enabled=True)
        assert page.value(f"document.querySelector('{chart} .meaning').hidden")
        for expanded in (True, False):
            if way == "tap":
                tap(page, f"{chart} button.name")
            else:
                page.value(f"document.querySelector('{chart} button.name').focus()")
                page.press("Enter")
            page.until(f"document.querySelector('{chart} .meaning').hidden === {str(not expanded).lower()}")
            said = page.value(f"document.querySelector('{chart} button.name').getAttribute('aria-expanded')")
            assert said == str(expanded).lower()
        assert page.texts(f"{chart} .meaning") == [meaning]
        # Large enough for a finger (WCAG 2.5.8).
        assert page.value(f"document.querySelector('{chart} button.name').getBoundingClientRect().height >= 24")
        assert page.errors == []


@pytest.mark.parametrize("address", ["#/", "#/groups", "#/alarms", "#/task/0"])
def test_a_table_wider_than_the_screen_says_so_and_scrolls_by_finger_and_keys(address, browser, url):
    box = "document.querySelector('.wide-box .scroll')"
    hint = "document.querySelector('.wide-box .hint')"
    classes = "[...document.querySelector('.wide-box').classList]"
    with browser.page(url, size="phone") as page:
        page.go(address, "td")
        page.until(f"!{hint}.hidden")
        assert page.value(f"{box}.scrollWidth > {box}.clientWidth")
        assert page.value(f"{box}.tabIndex") == 0
        assert page.value(f"{box}.getAttribute('aria-label')")
        assert page.value(classes) == ["wide-box", "more-right"]
        swipe_to_the_end(page, ".wide-box td", box)
        page.until(f"{classes}.join() === 'wide-box,more-left'")
        page.value(f"{box}.focus()")
        end = page.value(f"{box}.scrollLeft")
        for kind in ("rawKeyDown", "keyUp"):
            page.send("Input.dispatchKeyEvent", type=kind, key="ArrowLeft", code="ArrowLeft", windowsVirtualKeyCode=37)
        page.until(f"{box}.scrollLeft < {end} && {classes}.includes('more-right')")
        assert page.errors == []


def test_a_table_that_fits_says_nothing_and_is_no_stop(page):
    page.go("#/groups", "td")
    page.until("document.querySelector('.wide-box .scroll').clientWidth > 0")
    assert page.value("document.querySelector('.hint').hidden")
    assert page.value("document.querySelector('.wide-box .scroll').getAttribute('tabindex')") is None
    assert page.value("[...document.querySelector('.wide-box').classList]") == ["wide-box"]


def test_the_theme_follows_the_system_until_it_is_chosen(browser, url):
    with browser.page(url, dark=True) as page:
        assert page.value("document.documentElement.dataset.theme") == "dark"
        colours = [page.value("getComputedStyle(document.documentElement).backgroundColor")]
        page.click("#theme")
        assert page.value("document.documentElement.dataset.theme") == "light"
        colours.append(page.value("getComputedStyle(document.documentElement).backgroundColor"))
        assert len(set(colours)) == 2
        assert page.errors == []


@pytest.mark.parametrize(("size", "dark"), list(itertools.product(SIZES, (False, True))))
def test_no_view_is_wider_than_the_screen_and_all_can_be_read(size, dark, browser, url):
    """Text on its background has a contrast of 4.5 to 1 (WCAG AA), tinted tokens included."""
    with browser.page(url, size=size, dark=dark) as page:
        for address, ready in VIEWS.items():
            page.go(address, ready)
            assert page.value("document.documentElement.scrollWidth <= innerWidth"), address
            assert page.value(CONTRASTS) == [], address
        assert page.errors == []


def test_thousands_of_trajectories_open_a_page_at_a_time(browser, tmp_path):
    """In small; ``python -m tests.report.large`` measures 10,000 of 500 tokens. The time is printed, never judged."""
    groups = write_large(tmp_path / "run", trajectories=1600, tokens=100)
    assert main([str(tmp_path / "run")]) == 0
    seconds, elements = opening(browser, (tmp_path / "run" / "report.html").as_uri(), groups - 1)
    print({what: round(value, 2) for what, value in seconds.items()})
    # Whatever there is, the page holds a page of it.
    assert max(elements) < 2500


CONTRASTS = """(() => {
  const NOT_LOOKED_AT = "svg, script, style, noscript, [hidden], .skip, :disabled, option";
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const over = (top, under) => {
    const alpha = top.length > 3 ? top[3] : 1;
    return [0, 1, 2].map((i) => top[i] * alpha + under[i] * (1 - alpha));
  };
  const background = (element) => {
    const above = [];
    for (let e = element; e; e = e.parentElement) above.unshift(parts(getComputedStyle(e).backgroundColor));
    return above.reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !element.offsetParent || element.closest(NOT_LOOKED_AT)) continue;
    const under = background(element);
    const ink = over(parts(getComputedStyle(element).color), under);
    const [a, b] = [light(ink), light(under)].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    const name = `${element.tagName} ${element.className} ${element.textContent.slice(0, 20)}`;
    if (contrast < 4.5) found.push(`${name}: ${contrast.toFixed(2)}`);
  }
  return [...new Set(found)].slice(0, 8);
})()"""
