"""On each page axe finds nothing of weight, in the dark and on a narrow screen; members see no page of operators."""

import re

import pytest
from playwright.sync_api import expect

from tests.support.fleets.console_fleet import ConsoleFleet
from tests.support.pages.console import Console

LISTS = ("instances", "reservations", "nodes", "jobs", "locks", "networks")
OPERATORS = ("fleet", "nodes", "jobs", "locks", "networks", "cells", "capacity", "index")
PAGES = ("fleet", *LISTS, "cells", "capacity", "index", "index?tab=audit", "index?tab=failures", "changes", "bulk")


def settle(console: Console, address: str) -> None:
    """Go to a page, and wait for what it asks for."""
    with console.page.expect_response(lambda answer: "/fleetlight/" in answer.url):
        page = console.open(address)
    page.get_by_role("heading", level=1).wait_for()
    expect(page.get_by_role("status", name="Loading")).to_have_count(0)


@pytest.mark.night
@pytest.mark.parametrize("address", PAGES)
def test_axe_finds_nothing_of_weight_in_the_light_in_the_dark_and_on_a_narrow_screen(
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


def test_the_first_page_of_an_operator_says_how_the_fleet_is(console: Console, fleet: ConsoleFleet, own: str) -> None:
    fleet.create("cell1", display_name=own, vm_state="error")
    page = console.open("")
    expect(page.get_by_role("status").filter(has_text="Whole: 2 of 2 cells are well")).to_be_visible()
    expect(page.get_by_text(own)).to_be_visible()
    expect(page.get_by_role("link", name="cell1", exact=True).first).to_be_visible()
    with fleet.without("cell2"):
        ill = page.get_by_role("region", name="Whole or not")
        expect(ill).to_contain_text("Not whole: 1 of 2 cells are well")
        expect(ill.get_by_role("listitem")).to_contain_text("cell2 down")
    page.get_by_role("link", name=re.compile("instances? in error")).click()
    expect(console.named(own)).to_be_visible()


def test_the_first_page_of_a_member_are_the_instances_of_the_project(member: Console) -> None:
    page = member.open("")
    expect(page.get_by_role("heading", level=1)).to_have_text("Instances")
    expect(member.row(0)).to_be_visible()


def test_a_phone_shows_rows_at_once_and_the_rest_behind_words(console: Console) -> None:
    page = console.page
    page.set_viewport_size({"width": 390, "height": 800})
    console.list("instances")
    box = console.row(0).bounding_box()
    assert box is not None
    assert box["y"] < 400, "in the first half"
    page.get_by_text("Counts by value").click()
    page.get_by_role("button", name="active").click()
    expect(console.filter).to_have_value('vm_state == "active"')
    page.get_by_text("Add a condition").click()
    panel = page.locator(".maker .panel").bounding_box()
    assert panel is not None
    assert panel["x"] >= 0 <= 390 - panel["x"] - panel["width"], "nothing of it is cut off"
    page.get_by_text("Add a condition").click()
    navigation = page.get_by_role("navigation")
    expect(navigation.get_by_role("link", name="Capacity")).to_be_hidden()
    navigation.get_by_role("button", name="Instances").click()
    console.watched.axe()
    navigation.get_by_role("link", name="Capacity").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Capacity")
    expect(navigation.get_by_role("link", name="Capacity")).to_be_hidden()


def test_arrow_keys_go_from_tab_to_tab(console: Console) -> None:
    page = console.open("index")
    page.get_by_role("tab", name="Work").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Audit")).to_be_focused()
    expect(page.get_by_role("tab", name="Audit")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Home")
    expect(page.get_by_role("tab", name="Work")).to_be_focused()
