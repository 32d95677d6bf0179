"""A change of all instances that a filter lets pass, from the list to its end."""

import re

import pytest
from playwright.sync_api import expect

from tests.support.fleets.console_fleet import ConsoleFleet
from tests.support.pages.console import Console

pytestmark = pytest.mark.night

_COUNT = 40


def test_all_that_match_are_stopped_and_what_changed_meanwhile_is_skipped(
    console: Console, fleet: ConsoleFleet, own: str
) -> None:
    cells = ("cell1", "cell2")
    made = [
        (cell := cells[number % 2], fleet.create(cell, display_name=f"crowd-{number}", project_id=own))
        for number in range(_COUNT)
    ]
    page = console.list(f'instances?filter=project_id == "{own}"')
    # Only then the index has all of them, and a preview too.
    expect(page.locator(".total")).to_have_text(str(_COUNT))
    page.get_by_role("link", name="Change all").click()
    page.get_by_label("Action").select_option("stop")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Stop {_COUNT} instances")
    expect(page.get_by_text(f"{own}: {_COUNT}")).to_be_visible()
    expect(page.get_by_text(f"cell1: {_COUNT // 2}")).to_be_visible()
    console.watched.axe()
    fleet.stop(*made[0])
    fleet.create("cell1", display_name="crowd-late", project_id=own)
    page.reload()
    expect(
        page.get_by_text(f"{_COUNT - 1} of {_COUNT} can, by their states now; not those that are stopped (1).")
    ).to_be_visible()
    page.get_by_role("button", name=re.compile(f"Stop all {_COUNT}")).click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    ended = f"{_COUNT - 1} done, 0 failed, 1 skipped, 0 unknown, 0 running, 0 to do"
    expect(page.get_by_text(ended, exact=False)).to_be_visible(timeout=60_000)
    expect(page.get_by_text(f"{_COUNT - 1} of {_COUNT} done")).to_be_visible()
    console.list(f'instances?filter=project_id == "{own}" and vm_state == "active"')
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(console.named("crowd-late")).to_be_visible()


def test_a_preview_says_that_no_state_allows_it_before_it_is_ordered(
    console: Console, fleet: ConsoleFleet, own: str
) -> None:
    for number in range(5):
        fleet.create("cell1", display_name=f"broken-{number}", project_id=own, vm_state="error")
    page = console.open(f'bulk?filter=project_id == "{own}"')
    page.get_by_label("Action").select_option("Reboot")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("0 of 5 can, by their states now; not those that are error (5).")).to_be_visible()
    page.get_by_role("button", name="Reboot all 5").click()
    page.get_by_role("dialog").get_by_role("button", name="Reboot").click()
    expect(page.get_by_text("0 of 5 done")).to_be_visible()
    console.open(f'bulk?filter=project_id == "{own}"')
    page.get_by_label("Action").select_option("Reset state")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("5 of 5 can, by their states now")).to_be_visible()
    page.get_by_role("button", name="Reset state all 5").click()
    page.get_by_role("dialog").get_by_role("button", name="Reset state").click()
    expect(page.get_by_text("5 done, 0 failed, 0 skipped")).to_be_visible()
    console.watched.axe()
