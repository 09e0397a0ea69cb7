"""A report about three runs, and a tab of a browser that shows it and is asked in the end what went wrong."""

import pytest

from rlagents.report.__main__ import main
from tests.browser import browser
from tests.report.synthetic import write_run

__all__ = ["browser"]

FIRST = "#/run/0/step/0/group/0/member/0"
"""Of the hostile trajectory."""


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    root = tmp_path_factory.mktemp("report")
    folders = [write_run(root / f"seed{seed}", seed=seed, steps=30, groups=3) for seed in range(2)]
    folders.append(write_run(root / "other", steps=30, changes={"method.clip_low": 0.3}, alarms=False))
    assert main([*map(str, folders), f"--output={root / 'report.html'}"]) == 0
    return (root / "report.html").as_uri()


@pytest.fixture
def page(browser, url):
    with browser.page(url) as page:
        yield page
        assert page.errors == []
        assert page.requests == [url]
        assert page.value("document.title") != "owned"


def focused(page, attribute="textContent"):
    return page.value(f"document.activeElement.{attribute}")
