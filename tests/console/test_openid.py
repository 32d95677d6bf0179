"""Logging in at a real OpenID provider, and out again."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.integration.test_up import free_port
from tests.support.fleets.console_fleet import ConsoleFleet, console_fleet
from tests.support.pages.console import Console
from tests.support.servers.browser import BrowserPage
from tests.support.servers.openid_provider import openid_provider

pytestmark = pytest.mark.night

ADA = {"sub": "ada", "preferred_username": "Ada Lovelace", "groups": ["staff", "operators", "demo:member"]}
EVE = {"sub": "eve", "preferred_username": "Eve", "groups": ["staff"]}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleFleet]:
    folder, port = tmp_path_factory.mktemp("fleet"), free_port()
    with openid_provider(free_port(), folder / "provider.log", ADA, EVE) as issuer:
        variables = {
            "FLEETLIGHT_OPENID_ISSUER": issuer,
            "FLEETLIGHT_OPENID_CLIENT_ID": "fleetlight",
            "FLEETLIGHT_OPENID_CLIENT_SECRET": "any",
            "FLEETLIGHT_OPENID_NAME": "Example",
            "FLEETLIGHT_OPENID_ADMINISTRATOR": "operators",
            "FLEETLIGHT_API_COMPUTE_LINK_PREFIX": f"http://127.0.0.1:{port}",
        }
        with console_fleet(folder, "--port", str(port), **variables) as made:
            yield made


@pytest.fixture
def console(fleet: ConsoleFleet, browser_page: BrowserPage) -> Console:
    """With no one logged in."""
    browser_page.play("https://cdn.jsdelivr.net/")  # the looks of the provider's own pages
    return Console(fleet, browser_page)


def sign_in(console: Console, address: str, button: str) -> Page:
    """Go to a page without a login, and answer at the provider with a button."""
    page = console.page
    page.goto(f"{console.fleet.api.url}/console/{address}")
    page.get_by_role("link", name="Sign in with Example").wait_for()
    console.watched.axe()
    page.get_by_role("link", name="Sign in with Example").click()
    page.get_by_role("button", name=button, exact=True).click()
    return page


def test_a_user_of_the_provider_logs_in_to_the_page_that_was_asked_for_and_out_again(console: Console) -> None:
    page = sign_in(console, "instances?filter=vm_state+%3D%3D+%22active%22", "ada")
    console.row(0).get_by_role("link").first.wait_for()
    expect(page).to_have_url(re.compile(r"/console/instances\?filter=vm_state"))
    expect(page.get_by_text("Ada Lovelace")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    page.get_by_role("button", name="End session").click()
    expect(page.get_by_role("link", name="Sign in with Example")).to_be_visible()


def test_a_refused_user_reads_why_and_can_try_again(console: Console) -> None:
    console.watched.expect_status(401, "/callback")
    console.watched.expect_status(403, "/callback")
    page = sign_in(console, "", "Deny")
    expect(page.get_by_role("alert")).to_have_text("Example did not let you in, or you cancelled the login.")
    console.watched.axe()
    page.get_by_role("link", name="Back to the login").click()
    page.get_by_role("link", name="Sign in with Example").click()
    page.get_by_role("button", name="eve", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("Example knows you as Eve, but gives you a role in no project")
