"""A headless Chromium driven over the DevTools protocol through a pipe: no driver, no port, no package."""

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FETCHED = ROOT / ".cache" / "browser" / "chromium"
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
_OPTIONS = (
    "--headless",
    "--no-sandbox",  # containers run as root
    "--disable-gpu",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-software-rasterizer",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)
_SECONDS = 30.0


def browser_path():
    """RLAGENTS_BROWSER, chromium on the PATH, or what launch/fetch_browser.sh brought; None without any."""
    if named := os.environ.get("RLAGENTS_BROWSER"):
        return named
    return shutil.which("chromium") or (str(FETCHED) if FETCHED.exists() else None)


class BrowserError(AssertionError):
    """The browser refused a command, or did not answer."""


class Browser:
    """One browser process; ``page(url)`` opens a tab."""

    def __init__(self, path):
        self._profile = tempfile.mkdtemp(prefix="rlagents-browser-")
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        # Chromium reads from 3 and writes to 4.
        start = f'exec "$0" "$@" 3<&{commands} 4>&{answers}'
        self._process = subprocess.Popen(
            ["bash", "-c", start, path, *_OPTIONS, f"--user-data-dir={self._profile}", "about:blank"],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._numbers, self._unread, self._pages = itertools.count(1), b"", {}

    def close(self):
        """End it. Its profile goes with it."""
        with contextlib.suppress(BrowserError, OSError):
            self.send("Browser.close", seconds=5)
        self._process.kill()
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)
        shutil.rmtree(self._profile, ignore_errors=True)

    def send(self, method, session=None, seconds=_SECONDS, **params):
        """Give a command and return its result; events that come meanwhile go to their pages."""
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        end = time.monotonic() + seconds
        while True:
            message = self._next(end, method)
            if message.get("id") == number:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']}")
                return message["result"]
            self._hand_out(message)

    def wait(self, seconds):
        """Let events come in for so long, and longer where one has begun to come: it is read to its end."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if b"\0" in self._unread or select.select([self._answers], [], [], left)[0]:
                self._hand_out(self._next(time.monotonic() + _SECONDS, "an event that it had begun"))

    @contextlib.contextmanager
    def page(self, url, *, size="desktop", dark=False, ready="document.readyState === 'complete'"):
        """A tab of its own that has opened ``url`` and come to where the expression ``ready`` is true."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        page.open(url, size, dark, ready)
        try:
            yield page
        finally:
            self.send("Target.closeTarget", targetId=target)
            del self._pages[session]

    def _next(self, end, what):
        while b"\0" not in self._unread:
            if not select.select([self._answers], [], [], max(0.0, end - time.monotonic()))[0]:
                raise BrowserError(f"the browser did not answer to {what}")
            read = os.read(self._answers, 1 << 16)
            if not read:
                raise BrowserError("the browser ended")
            self._unread += read
        message, self._unread = self._unread.split(b"\0", 1)
        return json.loads(message)

    def _hand_out(self, message):
        page = self._pages.get(message.get("sessionId"))
        if page is not None and "method" in message:
            page.happened(message["method"], message["params"])


class Page:
    """One tab.

    Attributes:
      errors: what the console said was wrong, uncaught exceptions and refused content.
      requests: addresses that were asked for.
    """

    def __init__(self, browser, session):
        self._browser, self._session = browser, session
        self.errors, self.requests = [], []

    def send(self, method, **params):
        return self._browser.send(method, self._session, **params)

    def happened(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(params["args"])[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, url, size, dark, ready):
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        width, height = SIZES[size]
        phone = size == "phone"
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=str(url))
        self.until(f"document.querySelector('#main h1') && ({ready})")

    def value(self, expression):
        """What a JavaScript expression is, promises awaited, as JSON."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {json.dumps(answer['exceptionDetails'])[:800]}")
        return answer["result"].get("value")

    def until(self, expression, seconds=_SECONDS):
        """Wait until the expression is true, and return nothing; raises BrowserError if it never is."""
        end = time.monotonic() + seconds
        while not self.value(f"Boolean({expression})"):
            if time.monotonic() > end:
                shown = self.value("document.querySelector('#main')?.innerText.slice(0, 500)")
                raise BrowserError(f"never true: {expression}\nthe page says: {shown}\nerrors: {self.errors}")
            self._browser.wait(0.02)

    def texts(self, selector):
        return self.value(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)")

    def go(self, address, ready):
        """Follow an address within the page and wait for ``ready`` (a selector)."""
        self.value(f"location.hash = {json.dumps(address)}")
        self.until(f"document.querySelector('#main').dataset.address === {json.dumps(address)}")
        self.until(f"document.querySelector({json.dumps(ready)})")

    def place(self, selector):
        """Middle of an element, scrolled to, in the window."""
        found = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null;"
            " e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            " return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        assert found is not None, f"nothing is {selector}"
        return found

    def hover(self, selector):
        x, y = self.place(selector)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector):
        x, y = self.place(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def press(self, *keys):
        for key in keys:
            text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
            code = {"Enter": 13, "Tab": 9, "Escape": 27}.get(key, 0)
            for kind in ("keyDown", "keyUp"):
                self.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)
                text = {}

    def type(self, text):
        self.send("Input.insertText", text=text)

    def screenshot(self, path, *, whole=False):
        options = {}
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            options = {"captureBeyondViewport": True, "clip": {**size, "scale": 1}}
        picture = self.send("Page.captureScreenshot", format="png", **options)
        Path(path).write_bytes(base64.b64decode(picture["data"]))


@pytest.fixture(scope="module")
def browser():
    """A browser for the tests of a module; without one they are skipped."""
    path = browser_path()
    if path is None:
        pytest.skip("there is no browser: run launch/fetch_browser.sh, or set RLAGENTS_BROWSER")
    started = Browser(path)
    yield started
    started.close()
