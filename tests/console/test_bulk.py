"""A change of all instances that a filter lets pass, from the list to its end."""

import re

from playwright.sync_api import expect

from tests.support.fleets.console_fleet import ConsoleFleet
from tests.support.pages.console import Console

_COUNT = 40


def test_all_that_match_are_stopped_and_what_changed_meanwhile_is_skipped(
    console: Console, fleet: ConsoleFleet
) -> None:
    cells = ("cell1", "cell2")
    made = [
        (cell := cells[number % 2], fleet.create(cell, display_name=f"crowd-{number}", project_id="crowd"))
        for number in range(_COUNT)
    ]
    page = console.list('instances?filter=project_id == "crowd"')
    page.get_by_role("link", name="Change all").click()
    page.get_by_label("Action").select_option("stop")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"stop {_COUNT} instances")
    expect(page.get_by_text(f"crowd: {_COUNT}")).to_be_visible()
    expect(page.get_by_text(f"cell1: {_COUNT // 2}")).to_be_visible()
    console.watched.axe()
    fleet.stop(*made[0])
    fleet.create("cell1", display_name="crowd-late", project_id="crowd")
    page.get_by_role("button", name=re.compile(f"stop all {_COUNT}")).click()
    ended = f"{_COUNT - 1} done, 0 failed, 1 skipped, 0 unknown, 0 running, 0 to do"
    expect(page.get_by_text(ended, exact=False)).to_be_visible(timeout=60_000)
    expect(page.get_by_text("done", exact=True).first).to_be_visible()
    console.list('instances?filter=project_id == "crowd" and vm_state == "active"')
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(console.named("crowd-late")).to_be_visible()
