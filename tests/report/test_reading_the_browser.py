"""The tests' own reader of the browser: a message that comes in pieces, however slowly, is read whole."""

import sys

import pytest

from tests.browser import Browser, BrowserError

_IN_HALVES = """#!{python}
import os, time
for half in ({first!r}, {second!r}):
    os.write(4, half)
    time.sleep(0.3)
os.read(3, 1)
"""


class Heard:
    """A tab that keeps what it is told."""

    def __init__(self):
        self.heard = []

    def happened(self, method, params):
        self.heard.append((method, params))


@pytest.fixture
def halves(tmp_path):
    """Starts a stand-in that writes two halves, the second 0.3 s after the first."""
    started = []

    def start(first, second):
        path = tmp_path / "browser"
        path.write_text(_IN_HALVES.format(python=sys.executable, first=first, second=second))
        path.chmod(0o700)
        browser = Browser(str(path))
        tab = browser._pages["tab"] = Heard()
        started.append(browser)
        return browser, tab

    yield start
    for browser in started:
        browser.close()


def test_an_event_whose_end_comes_after_the_time_asked_for_is_read_whole(halves):
    browser, tab = halves(b'{"sessionId": "tab", "method": "Log.en', b'tryAdded", "params": {}}\0')
    for _ in range(200):
        browser.wait(0.02)
        if tab.heard:
            break
    assert tab.heard == [("Log.entryAdded", {})]


def test_two_events_that_come_at_once_are_both_handed_out(halves):
    event = b'{"sessionId": "tab", "method": "Log.entryAdded", "params": {}}\0'
    browser, tab = halves(event + event, b"")
    for _ in range(200):
        browser.wait(0.02)
        if len(tab.heard) == 2:
            break
    assert len(tab.heard) == 2


def test_a_browser_that_ends_is_told(halves):
    browser, _ = halves(b"{", b"")
    browser._process.kill()
    with pytest.raises(BrowserError, match="ended"):
        browser.wait(5)
