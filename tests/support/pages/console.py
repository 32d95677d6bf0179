"""The console in a browser, with someone logged in: going to its pages, and what is on all of them."""

from dataclasses import dataclass

from playwright.sync_api import Locator, Page, expect

from tests.support.fleets.console_fleet import ConsoleFleet
from tests.support.servers.browser import BrowserPage

_PATIENCE_MS = 20_000


@dataclass(frozen=True, slots=True)
class Console:
    """watched: its page, of which no error may be printed."""

    fleet: ConsoleFleet
    watched: BrowserPage

    @property
    def page(self) -> Page:
        return self.watched.page

    def log_in(self, user: str) -> None:
        login = {"user": user, "password": self.fleet.password(user)}
        url = f"{self.fleet.api.url}/fleetlight/session"
        answer = self.page.context.request.post(url, data=login, headers={"Fleetlight-Request": "console"})
        assert answer.status == 200, answer.text()

    def open(self, address: str) -> Page:
        """Go to a page. address: behind /console/."""
        expect.set_options(timeout=_PATIENCE_MS)
        self.page.goto(f"{self.fleet.api.url}/console/{address}")
        self.page.get_by_role("navigation", name="Pages").wait_for()
        return self.page

    def list(self, address: str) -> Page:
        """Go to a list, and wait for its rows."""
        self.open(address)
        self.row(0).get_by_role("link").first.wait_for()
        return self.page

    def row(self, position: int) -> Locator:
        return self.page.locator(f'tbody tr[aria-rowindex="{position + 2}"]')

    def named(self, name: str) -> Locator:
        """Rows of a list in which `name` stands."""
        return self.page.locator("tbody tr").filter(has=self.page.get_by_text(name, exact=True))

    @property
    def badge(self) -> Locator:
        return self.page.locator(".badge")

    @property
    def filter(self) -> Locator:
        return self.page.get_by_role("combobox", name="Filter")
