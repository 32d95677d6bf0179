"""On each page axe finds nothing serious, in the dark and on a narrow screen; members see no page of operators."""

import pytest
from playwright.sync_api import expect

from tests.support.pages.console import Console

LISTS = ("instances", "reservations", "nodes", "jobs", "locks", "networks")
OPERATORS = ("nodes", "jobs", "locks", "networks", "cells", "capacity", "index")
PAGES = (*LISTS, "cells", "capacity", "index", "index?tab=audit", "index?tab=failures", "changes", "bulk")


def settle(console: Console, address: str) -> None:
    """Go to a page, and wait for what it asks for."""
    with console.page.expect_response(lambda answer: "/fleetlight/" in answer.url):
        page = console.open(address)
    page.get_by_role("heading", level=1).wait_for()
    expect(page.get_by_role("status", name="Loading")).to_have_count(0)


@pytest.mark.parametrize("address", PAGES)
def test_nothing_serious_is_found_in_the_light_in_the_dark_and_on_a_narrow_screen(
    console: Console, address: str
) -> None:
    settle(console, address)
    console.watched.axe()
    console.page.emulate_media(color_scheme="dark")
    console.watched.axe()
    console.page.emulate_media(color_scheme="light")
    console.page.set_viewport_size({"width": 360, "height": 740})
    settle(console, address)
    assert console.page.evaluate("document.documentElement.scrollWidth") <= 360, "it is scrolled sideways"
    console.watched.axe()


def test_members_see_no_page_of_operators(member: Console) -> None:
    for address in OPERATORS:
        page = member.open(address)
        expect(page.get_by_role("alert")).to_have_text(f"{address.capitalize()} is for administrators.")
        link = page.get_by_role("navigation").get_by_role("link", name=address.capitalize(), exact=True)
        expect(link).to_have_count(0)


def test_members_see_their_projects_alone(member: Console) -> None:
    page = member.list("instances")
    expect(page.get_by_role("columnheader", name="Cell")).to_have_count(0)
    expect(page.get_by_role("button", name="My project")).to_have_count(0)
    page.get_by_role("button", name="Past").click()
    expect(page.get_by_label("As of")).to_be_visible()
    member.watched.axe()
    member.row(0).get_by_role("link").first.click()
    page.get_by_role("tab", name="History").click()
    expect(page.get_by_text("first values").or_(page.get_by_text("not kept any more"))).to_be_visible()
    page.get_by_role("tab", name="Fields").click()
    page.get_by_text("Security groups", exact=True).wait_for()
    member.watched.axe()


def test_the_colours_are_those_that_were_chosen(console: Console) -> None:
    page = console.list("instances")
    backgrounds = set()
    for style in ("light", "dark"):
        page.get_by_role("button", name="Colours").click()
        expect(page.locator("html")).to_have_attribute("data-theme", style)
        backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        console.watched.axe()
    assert len(backgrounds) == 2


def test_an_address_that_is_none_is_said_to_be_none(console: Console) -> None:
    page = console.open("nothing/of%20the%20kind")
    expect(page.get_by_role("alert")).to_have_text("There is no such page.")
