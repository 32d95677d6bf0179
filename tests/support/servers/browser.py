"""A page in a real browser, Debian's Chromium: what goes wrong in it fails the test.

A test that opens several pages takes `browser_context`, and makes a `BrowserPage` for each.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

_TIMEOUT_MS = 30_000
_SERIOUS = {"moderate", "serious", "critical"}


class BrowserPage:
    """page: Playwright's own. problems: errors of its console and scripts, and what it asked for elsewhere."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        # Answers that a test is about, such as 401 before a login: Chromium says each in the console.
        self.expected: set[str] = set()
        self._played: list[str] = []
        self.is_offline = False
        page.set_default_timeout(_TIMEOUT_MS)
        page.on("console", self._look_at)
        page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        page.on("request", self._look_at_request)

    def expect_status(self, status: int, path: str) -> None:
        """Do not take it for a problem that an address that ends with `path` is answered with `status`."""
        self.expected.add(f"{status} {path}")

    def expect_outage(self) -> None:
        """Do not take it for a problem from now on that requests do not reach the API."""
        self.is_offline = True

    def play(self, address: str) -> None:
        """Answer what is asked for below an address elsewhere, by pages that are not ours, with nothing."""
        self._played.append(address)
        self.page.route(f"{address}**", lambda route: route.fulfill(status=200, body=""))

    def axe(self) -> None:
        """Fail when the page as it is has something that axe calls moderate, serious or critical."""
        violations = Axe().run(self.page).response["violations"]
        found = [
            f"{each['id']}: {each['help']} at {[node['target'] for node in each['nodes']]}"
            for each in violations
            if each["impact"] in _SERIOUS
        ]
        assert not found, "\n".join(found)

    def check(self) -> None:
        assert not self.problems, "\n".join(self.problems)

    def _look_at(self, message: ConsoleMessage) -> None:
        if message.type != "error":
            return
        if self.is_offline and "net::ERR_INTERNET_DISCONNECTED" in message.text:
            return
        address = message.location["url"].partition("?")[0]
        for each in self.expected:
            status, _, path = each.partition(" ")
            if f"status of {status}" in message.text and address.endswith(path):
                return
        self.problems.append(f"console: {message.text} ({address})")

    def _look_at_request(self, request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "data:", "blob:", *self._played)):
            self.problems.append(f"asked for {request.url}")


@pytest.fixture(scope="module")
def chromium_browser(chromium: Path) -> Iterator[Browser]:
    """For one module: while Playwright runs, nothing else in this thread can run an event loop."""
    with sync_playwright() as playwright:
        # Tests run as root in CI, where Chromium's sandbox does not work; small /dev/shm are too small for it.
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture
def browser_context(chromium_browser: Browser) -> Iterator[BrowserContext]:
    """A browser without cookies; its pages share what they get."""
    with chromium_browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        yield context


@pytest.fixture
def browser_page(browser_context: BrowserContext) -> Iterator[BrowserPage]:
    watched = BrowserPage(browser_context.new_page())
    yield watched
    watched.check()
