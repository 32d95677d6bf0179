"""What changed lately, by whom, and what from what to what; live, over all cells, and for members of their projects."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.fleets.console_fleet import ConsoleFleet
from tests.support.pages.console import Console

pytestmark = pytest.mark.night


def changed(page: Page, name: str) -> Locator:
    """The rows of the changes of an instance."""
    return page.locator("tbody tr").filter(has=page.get_by_role("rowheader", name=name, exact=True))


def stop(console: Console, uuid: str) -> None:
    """As its owner does over the API."""
    answer = console.page.context.request.post(
        f"{console.fleet.api.url}/v2.1/servers/{uuid}/action",
        data={"os-stop": None},
        headers={"Fleetlight-Request": "console"},
    )
    assert answer.status == 202, answer.text()


def test_a_change_comes_by_itself_with_who_made_it_and_leads_to_its_instance_and_job(
    console: Console, fleet: ConsoleFleet, own: str
) -> None:
    uuid = fleet.create("cell1", display_name="to-be-watched", project_id=own)
    fleet.create("cell2", display_name="elsewhere", project_id=own)
    page = console.open(f'changes?filter=project_id == "{own}"')
    expect(changed(page, "to-be-watched")).to_contain_text("New")
    expect(changed(page, "elsewhere")).to_contain_text("cell2")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    console.watched.axe()
    stop(console, uuid)
    stopped = changed(page, "to-be-watched").filter(has_text="Power off: done")
    expect(stopped.get_by_role("listitem").filter(has_text="State")).to_have_text(re.compile("active.*→.*stopped"))
    ordered = changed(page, "to-be-watched").filter(has_text="powering-off").last
    expect(ordered.get_by_role("cell").nth(4)).to_have_text("admin")
    expect(page.locator("tbody tr").first).to_contain_text("to-be-watched")
    stopped.get_by_role("link", name="Jobs").click()
    expect(console.row(0)).to_contain_text("SERVER_STOP(to-be-watched)")
    page.go_back()
    changed(page, "to-be-watched").first.get_by_role("link", name="to-be-watched").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("to-be-watched")


def test_changes_wait_while_it_is_paused(console: Console, fleet: ConsoleFleet, own: str) -> None:
    fleet.create("cell1", display_name="before", project_id=own)
    page = console.open(f'changes?filter=project_id == "{own}"')
    expect(changed(page, "before")).to_be_visible()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    fleet.create("cell1", display_name="meanwhile", project_id=own)
    waiting = page.get_by_role("button", name=re.compile(r"Show \d+ change"))
    waiting.wait_for()
    expect(changed(page, "meanwhile")).to_have_count(0)
    waiting.click()
    expect(changed(page, "meanwhile")).to_be_visible()


def test_changes_are_narrowed_to_whom_made_them_and_when(console: Console, fleet: ConsoleFleet, own: str) -> None:
    uuid = fleet.create("cell1", display_name=own, project_id=own)
    page = console.open(f'changes?filter=project_id == "{own}"')
    stop(console, uuid)
    made = changed(page, own).filter(has=page.get_by_role("cell", name="admin", exact=True))
    expect(made.first).to_be_visible()
    everyone = changed(page, own).filter(has_text="New")
    expect(everyone).to_have_count(1)
    user = made.first.get_by_title(re.compile(".")).last.get_attribute("title")
    assert user is not None
    page.get_by_label("By", exact=True).fill(user)
    page.get_by_label("From").fill("1h ago")
    page.get_by_role("button", name="Show these").click()
    expect(everyone).to_have_count(0)
    expect(made.first).to_be_visible()
    console.watched.axe()
    page.get_by_label("To", exact=True).fill("30m ago")
    page.get_by_role("button", name="Show these").click()
    expect(page.get_by_text("Nothing that the filter lets pass has changed")).to_be_visible()


def test_older_changes_are_read_on_demand(console: Console, fleet: ConsoleFleet, own: str) -> None:
    for number in range(110):
        fleet.create("cell1", display_name=f"{own}-{number}", project_id=own)
    # A change is shown once the relay has numbered it.
    expect(changed(console.open(f'changes?filter=name == "{own}-109"'), f"{own}-109")).to_be_visible()
    page = console.open(f'changes?filter=project_id == "{own}"')
    expect(page.locator("tbody tr")).to_have_count(100)
    page.get_by_role("button", name="Older changes").click()
    expect(page.locator("tbody tr")).to_have_count(110)
    expect(page.get_by_role("button", name="Older changes")).to_have_count(0)


def test_members_see_the_changes_of_their_project_alone(member: Console, fleet: ConsoleFleet, own: str) -> None:
    fleet.create("cell1", display_name=own, project_id="demo")
    fleet.create("cell1", display_name="theirs", project_id="other")
    page = member.open("changes")
    expect(changed(page, own)).to_be_visible()
    expect(changed(page, "theirs")).to_have_count(0)
    expect(page.get_by_role("columnheader", name="Cell")).to_have_count(0)
    changed(page, own).get_by_role("link", name="History").click()
    expect(page.get_by_text("first values")).to_be_visible()


def test_changes_of_a_cell_that_does_not_answer_are_said_to_be_missing(console: Console, fleet: ConsoleFleet) -> None:
    with fleet.without("cell2"):
        page = console.open("changes")
        expect(page.get_by_text("Changes of some cells are missing: cell2")).to_be_visible()
    page = console.open('changes?filter=name == "nobody"')
    expect(page.get_by_text("Nothing that the filter lets pass has changed")).to_be_visible()
