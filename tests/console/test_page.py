"""The console's page in a real browser, over an embedded fleet with users."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Route, expect

from tests.support.servers.browser import BrowserPage
from tests.support.servers.live_api import LiveApi, live_api


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApi]:
    with live_api(tmp_path_factory.mktemp("fleet"), "--cells", "1", "--auth", "tokens") as api:
        yield api


def password_of(clouds_file: Path, cloud: str = "fleetlight") -> str:
    return str(yaml.safe_load(clouds_file.read_text())["clouds"][cloud]["auth"]["password"])


def test_the_page_loads_under_its_policy_and_shows_the_login(fleet: LiveApi, browser_page: BrowserPage) -> None:
    page = browser_page.page
    page.goto(fleet.url)
    page.get_by_role("button", name="Log in").wait_for()
    assert page.url.startswith(f"{fleet.url}/console/")
    browser_page.axe()
    expect(page.get_by_label("User")).to_be_focused()
    browser_page.expect_status(401, "/fleetlight/session")
    page.get_by_label("User").fill("nobody")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    # A sign that begins no escaped text.
    page.goto(f"{fleet.url}/console/instances/100%")
    page.get_by_role("button", name="Log in").wait_for()


def test_a_script_of_the_page_logs_in_and_never_sees_the_cookie(fleet: LiveApi, browser_page: BrowserPage) -> None:
    page = browser_page.page
    browser_page.expect_status(403, "/fleetlight/session")
    page.goto(f"{fleet.url}/console/")
    login = {"user": "admin", "password": password_of(fleet.clouds_file)}
    ask = """async ([method, headers, body]) => {
        const answer = await fetch("/fleetlight/session", {method, headers, body: body && JSON.stringify(body)});
        return [answer.status, document.cookie];
    }"""
    console = {"Fleetlight-Request": "console"}
    assert page.evaluate(ask, ["POST", console, login]) == [200, ""]
    assert page.evaluate(ask, ["GET", {}, None]) == [200, ""]
    assert page.evaluate(ask, ["DELETE", {}, None]) == [403, ""]
    assert page.evaluate(ask, ["DELETE", console, None]) == [204, ""]
    assert page.evaluate(ask, ["GET", {}, None]) == [200, ""]


def test_a_link_changes_nothing_where_somebody_is_logged_in(fleet: LiveApi, browser_page: BrowserPage) -> None:
    page, begun = browser_page.page, list[str]()
    page.goto(f"{fleet.url}/console/instances")
    page.get_by_label("User").fill("admin")
    page.get_by_label("Password").fill(password_of(fleet.clouds_file))
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Log out").wait_for()
    page.on("request", lambda request: begun.append(request.url) if request.method == "POST" else None)
    page.goto("about:blank")
    page.goto(f"{fleet.url}/console/#login=garbage")
    page.get_by_role("button", name="Log out").wait_for()
    assert not page.url.endswith("garbage")
    assert not [url for url in begun if url.endswith("/fleetlight/session")]


def test_logging_out_abandons_what_the_page_still_asks_for(fleet: LiveApi, browser_page: BrowserPage) -> None:
    page, held, leaving = browser_page.page, list[Route](), list[Route]()
    page.goto(f"{fleet.url}/console/instances")
    page.get_by_label("User").fill("admin")
    page.get_by_label("Password").fill(password_of(fleet.clouds_file))
    page.route("**/fleetlight/query/counts?**", lambda route: held.append(route))  # noqa: PLW0108  # Playwright marks it
    with page.expect_request("**/fleetlight/query/counts?**"):
        page.get_by_role("button", name="Log in").click()
    page.route("**/fleetlight/session", lambda route: leaving.append(route))  # noqa: PLW0108
    # A request that the API answers after it has ended the session would be refused.
    abandoned = page.expect_event("requestfailed", lambda request: request == held[0].request, timeout=5_000)
    with page.expect_request("**/fleetlight/session"), abandoned:
        page.get_by_role("button", name="Log out").click()
    page.unroute("**/fleetlight/session")
    leaving[0].continue_()
    page.get_by_role("button", name="Log in").wait_for()


def test_nothing_that_the_policy_forbids_gets_past_the_browser(fleet: LiveApi, browser_page: BrowserPage) -> None:
    browser_page.page.goto(f"{fleet.url}/console/")
    browser_page.page.evaluate("document.body.setAttribute('onclick', 'alert(1)')")
    with pytest.raises(AssertionError, match="Content Security Policy"):
        browser_page.check()
    browser_page.problems.clear()
