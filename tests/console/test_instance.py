"""One instance: what it is, what is done to it, and what became of it; its name is never anything but text."""

import re

import pytest
from playwright.sync_api import expect

from tests.support.fleets.console_fleet import ConsoleFleet
from tests.support.pages.console import Console

_FAULT = {"code": 500, "message": "No valid host was found.", "details": None, "created_at": 1_795_655_740_000_000}
_ASKED = {
    "Fault": "No valid host was found.",
    "State": "error",
    "Power": "off",
    "Cell": "cell1",
    "Host": "cell1-compute-03",
    "Zone": "cell1-a",
    "Project": "asking",
    "Owner": "ada",
    "Created": "ago",
    "Launched": "",
    "Flavor": "",
    "Tags": "blue",
    "role": "web",
}


def test_an_instance_is_stopped_and_its_history_says_what_changed(
    console: Console, fleet: ConsoleFleet, own: str
) -> None:
    uuid = fleet.create("cell1", display_name=own)
    page = console.list(f'instances?filter=name == "{own}"')
    page.get_by_role("link", name=own).click()
    expect(page.get_by_role("heading", name=own)).to_be_visible()
    assert page.url.endswith(uuid)
    console.watched.axe()
    page.get_by_role("button", name="Stop", exact=True).click()
    asked = page.get_by_role("dialog", name=f"Stop {own}")
    expect(asked).to_contain_text("The guest is asked to shut down")
    asked.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stop: accepted.")).to_be_visible()
    expect(page.locator("header .state").first).to_have_text("stopped")
    done = page.get_by_role("row").filter(has=page.get_by_role("cell", name="stop", exact=True))
    expect(done).to_contain_text("Success")
    expect(page.get_by_role("button", name="Start", exact=True)).to_be_enabled()
    page.get_by_role("tab", name="History").click()
    changed = page.get_by_role("listitem").filter(has=page.get_by_title("vm_state", exact=True)).last
    expect(changed.locator("del")).to_have_text("active")
    expect(changed.locator("ins")).to_have_text("stopped")
    console.watched.axe()
    page.get_by_role("tab", name="Fields").click()
    expect(page.get_by_text("cell1-compute").first).to_be_visible()
    console.watched.axe()
    page.get_by_role("link", name="Its jobs").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(console.row(0)).to_contain_text(f"SERVER_STOP({own})")


def test_an_instance_says_first_how_it_is_where_and_whose(console: Console, fleet: ConsoleFleet) -> None:
    place = {"host": "cell1-compute-03", "node": "cell1-compute-03.example.org", "availability_zone": "cell1-a"}
    named = {"display_name": "asked-about", "project_id": "asking", "user_id": "ada", "tags": ["blue"]}
    uuid = fleet.create(
        "cell1", **named, **place, vm_state="error", power_state=4, metadata={"role": "web"}, fault=_FAULT
    )
    page = console.open(f"instances/{uuid}")
    rows = {name: page.locator("dl.values > div").filter(has=page.get_by_text(name, exact=True)) for name in _ASKED}
    for name, value in _ASKED.items():
        expect(rows[name].first).to_contain_text(value)
    expect(page.get_by_role("heading", name="Last changes")).to_be_visible()
    console.watched.axe()
    rows["Host"].get_by_role("link", name="cell1-compute-03").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(console.row(0)).to_contain_text("cell1-compute-03")
    page.go_back()
    page.get_by_role("tab", name="Fields").click()
    for group in ("Name", "State", "Where", "Whose", "Size", "Network", "Disks", "Times"):
        expect(page.get_by_role("heading", name=group, exact=True)).to_be_visible()
    metadata = page.locator("dl.values > div").filter(has=page.get_by_text("Metadata", exact=True))
    expect(metadata.get_by_role("listitem")).to_have_text("role: web")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"),
        ("a\u202eb\u2066c", "a\ufffdb\ufffdc"),
        ("a\x1b[31mb\tc", "a\u241b[31mb\u2409c"),
    ],
    ids=["markup", "direction", "escape"],
)
def test_a_name_is_shown_as_text_wherever_it_is(console: Console, fleet: ConsoleFleet, name: str, shown: str) -> None:
    uuid = fleet.create("cell1", display_name=name)
    page = console.list(f'instances?filter=uuid == "{uuid}"')
    expect(console.row(0).get_by_role("link")).to_have_text(shown)
    console.row(0).get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(shown)
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("heading")).to_have_text(f"Stop {shown}")
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Fields").click()
    expect(page.get_by_text(shown, exact=True).nth(1)).to_be_visible()
    assert page.locator("main img:not([role])").count() == 0


@pytest.mark.night
def test_a_change_is_seen_in_the_list_without_reading_it_again(console: Console, fleet: ConsoleFleet, own: str) -> None:
    uuid = fleet.create("cell1", display_name="watched", project_id=own)
    page = console.list(f'instances?filter=project_id == "{own}"')
    # It is read once more when changes come, since it may be older than the first of them.
    with page.expect_response(re.compile(r"/fleetlight/query\?")):
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
    fleet.stop("cell1", uuid)
    expect(console.named("watched")).to_contain_text("stopped")
    fleet.create("cell2", display_name="newcomer", project_id=own)
    page.get_by_role("button", name="1 change").click()
    expect(console.named("newcomer")).to_be_visible()
