"""What operators see and do: how cells are, what fits, what the index needs."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from uuid import uuid4

import pytest
from playwright.sync_api import Locator, Page, expect

from fleetlight.cells.fleet.failures import Failure, FailureSummary
from fleetlight.cells.model import Cell
from fleetlight.resources.clock import system_clock
from tests.support.fleets.console_fleet import ConsoleFleet
from tests.support.fleets.documents import make_uuid
from tests.support.pages.console import Console
from tests.support.played.producers import let_announce, refused_announcement

pytestmark = pytest.mark.night


def test_a_cell_that_dies_is_seen_on_the_board(console: Console, fleet: ConsoleFleet) -> None:
    page = console.open("cells")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="cell2"))
    expect(row).to_contain_text("well")
    expect(row.get_by_role("cell", name="changes", exact=True)).to_be_visible()
    with fleet.without("cell2"):
        expect(row).to_contain_text("down")
        expect(page.get_by_role("status").first).to_contain_text("1 down")
        console.watched.axe()
        page.keyboard.press("g")
        page.keyboard.press("p")
        expect(console.badge).to_contain_text("not complete")
        page.go_back()
    expect(row).to_contain_text("well")


def live(console: Console, address: str) -> Page:
    """A list in which changes come. It is read once more then, since it may be older than the first of them."""
    page = console.list(address)
    with page.expect_response(re.compile(r"/fleetlight/query\?")):
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
    return page


def test_a_job_goes_on_in_the_list_without_reading_it_again(console: Console, fleet: ConsoleFleet) -> None:
    with fleet.waiting_job("cell1"):
        page = live(console, "jobs")
        expect(console.row(0)).to_contain_text("queued")
        read: list[str] = []
        page.on("request", lambda request: read.append(request.url))
    expect(console.row(0)).to_contain_text("success")
    assert not [url for url in read if "/fleetlight/query?" in url]


def test_a_node_goes_offline_in_the_list(console: Console, fleet: ConsoleFleet) -> None:
    live(console, 'nodes?columns=name,role&filter=name == "cell1-compute-03"')
    expect(console.row(0).get_by_role("cell", name="R", exact=True)).to_be_visible()
    with fleet.forced_down("cell1", "cell1-compute-03"):
        expect(console.row(0).get_by_role("cell", name="O", exact=True)).to_be_visible()
    expect(console.row(0).get_by_role("cell", name="R", exact=True)).to_be_visible()


def test_what_is_reserved_counts_until_it_is_cancelled_or_real(console: Console, own: str) -> None:
    page = console.open("capacity")
    page.get_by_role("table", name="By cell").wait_for()
    processors = page.get_by_role("table", name="By cell").get_by_role("row").last.get_by_role("cell").nth(1)
    before = processors.inner_text()
    reserved = int(found[1]) if (found := re.search(r"(\d+) reserved", before)) else 0
    page.get_by_role("button", name="Reserve").click()
    form = page.get_by_role("dialog", name="Reserve capacity")
    form.get_by_label("Name").fill(f"{own}.example.org")
    form.get_by_label("vCPU").fill("3")
    form.get_by_label("Operating system").fill("debian-12")
    console.watched.axe()
    form.get_by_role("button", name="Reserve").click()
    expect(page.get_by_text(f"{own}.example.org is reserved.")).to_be_visible()
    expect(processors).to_contain_text(f"{reserved + 3} reserved")
    page.get_by_role("button", name="Count").click()
    expect(page.get_by_text("if nothing were reserved")).to_have_count(1)

    page.get_by_role("button", name="Reserve").click()
    form.get_by_label("Name").fill(f"{own}-more.example.org")
    form.get_by_label("How many").fill("3")
    form.get_by_label("Flavor").select_option("m1.small")
    expect(form.get_by_label("vCPU")).to_have_value("1")
    form.get_by_label("Operating system").fill("debian-12")
    form.get_by_role("button", name="Reserve").click()
    expect(page.get_by_text(f"3 are reserved, {own}-more-1.example.org to {own}-more-3.example.org.")).to_be_visible()
    expect(processors).to_contain_text(f"{reserved + 6} reserved")

    console.list("reservations")
    page.get_by_role("link", name=f"{own}.example.org").click()
    console.watched.axe()
    page.get_by_role("button", name="Make it real").click()
    asked = page.get_by_role("dialog", name="Make it real?")
    expect(asked).to_contain_text("made on the node that is reserved")
    asked.get_by_role("button", name="Make it real").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    console.open("capacity")
    expect(processors).to_contain_text(f"{reserved + 3} reserved")
    expect(processors).not_to_have_text(before)


def test_capacity_of_a_cell_that_dies_stays_and_is_dated(console: Console, fleet: ConsoleFleet) -> None:
    page = console.open("capacity")
    row = page.get_by_role("table", name="By cell").get_by_role("row").filter(has_text="cell2")
    expect(row).to_contain_text(re.compile(r"\d used \(\d+\.\d %\)"))
    total = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="All cells"))
    expect(total).to_contain_text("16")
    with fleet.without("cell2"):
        expect(row).to_contain_text("does not answer; as of")
        expect(row).to_have_class("away")
        expect(total).to_contain_text("16")
        console.watched.axe()
    expect(row).not_to_contain_text("does not answer")
    page.get_by_label("Flavor").select_option("m1.large")
    expect(page.get_by_label("vCPU", exact=True)).to_have_value("4")
    expect(page.get_by_text(re.compile(r"All cells: [\d,]+"))).to_be_visible()


def test_room_is_found_down_to_the_node_and_what_is_on_it(console: Console, fleet: ConsoleFleet, own: str) -> None:
    name = "cell1-compute-05.example.org"
    fleet.create("cell1", display_name=own, host="cell1-compute-05", node=name)
    page = console.open("capacity")
    page.get_by_role("table", name="By cell").get_by_role("link", name="cell1").click()
    nodes = page.get_by_role("table", name="Nodes of cell1")
    nodes.get_by_role("link", name=name).wait_for()
    console.watched.axe()
    nodes.get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", name="Instances")).to_be_visible()
    expect(console.filter).to_have_value(f'pnode == "{name}" and cell == "cell1"')
    expect(console.named(own)).to_be_visible()


_WORK = {
    "Compare": None,
    "Rebuild": "Make a new index",
    "Go back": "Put the index that the last rebuild replaced",
    "Drop the old index": "there is no way back",
}


@contextmanager
def one_more(page: Page, name: str) -> Iterator[Locator]:
    """The newest work on the index, of which one more is called so at the end of the block."""
    page.locator(".work").or_(page.get_by_text("No work was started here yet.")).first.wait_for()
    found = page.get_by_role("group", name=name)
    before = found.count()
    yield found.first
    expect(found).to_have_count(before + 1, timeout=60_000)


def test_work_on_the_index_is_started_and_followed_to_its_end(console: Console) -> None:
    page = console.open("index")
    for title, will in _WORK.items():
        with one_more(page, f"{title}, done") as work:
            page.get_by_label("Work").first.select_option(title)
            page.get_by_role("button", name="Start").click()
            if will is not None:
                asked = page.get_by_role("dialog", name=f"{title}?")
                expect(asked).to_contain_text(will)
                asked.get_by_role("button", name=title).click()
        expect(work).to_contain_text(re.compile("by .*, started .*, ended"))
    expect(page.get_by_text("the old index is dropped").first).to_be_visible()
    console.watched.axe()
    page.get_by_label("Work").first.select_option("Sync")
    page.get_by_label("Cells").fill("nowhere")
    console.watched.expect_status(400, "/fleetlight/index/work")
    console.watched.expect_status(404, "/fleetlight/index/work")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert")).to_contain_text("nowhere")


def test_nothing_is_lost_that_changes_while_the_index_is_rebuilt(
    console: Console, fleet: ConsoleFleet, own: str
) -> None:
    page = console.open("index")
    made: list[str] = []
    is_done = Event()

    def change() -> None:
        while not is_done.is_set():
            made.append(f"{own}-{len(made)}")
            fleet.create("cell1", display_name=made[-1])

    with ThreadPoolExecutor(1) as thread:
        changing = thread.submit(change)
        try:
            with one_more(page, "Rebuild, done"):
                page.get_by_label("Work").first.select_option("Rebuild")
                page.get_by_role("button", name="Start").click()
                page.get_by_role("dialog").get_by_role("button", name="Rebuild").click()
        finally:
            is_done.set()
        changing.result()
    page = console.list(f"instances?filter={own}-")
    expect(page.get_by_role("status")).to_have_text(f"{len(made):,}")
    expect(console.badge).to_have_text(re.compile("^ ?complete"))


def without_failures(fleet: ConsoleFleet) -> Cell:
    """A cell, once nothing of an earlier run of a test is left of its messages."""
    cell = fleet.fleet.cell("cell1")
    fleet.fleet.failures.drop([each.id for each in fleet.fleet.failures.summaries([cell.uuid])])
    return cell


def test_a_message_that_failed_is_tried_again_once_its_reason_is_removed(console: Console, fleet: ConsoleFleet) -> None:
    cell = without_failures(fleet)
    fleet.fleet.set_takes_announcements(cell.uuid, False)
    fleet.fleet.failures.add([refused_announcement(cell)])
    page = console.open("cells")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="cell1"))
    row.get_by_role("link", name="1", exact=True).click()
    work = page.locator(".work").first
    failed = page.get_by_role("group", name="refused")
    expect(failed).to_contain_text("its producer is not known")
    failed.get_by_text("The message").click()
    console.watched.axe()
    failed.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("status")).to_contain_text("It is tried again.")
    page.get_by_role("tab", name="Work").click()
    expect(work).to_have_accessible_name("Retry, failed")

    let_announce(fleet.fleet, cell)
    page.get_by_role("tab", name="Failed messages").click()
    failed.get_by_role("button", name="Try again").click()
    page.get_by_role("tab", name="Work").click()
    expect(work).to_have_accessible_name("Retry, done")
    expect(work).to_contain_text("1 solved, 0 not solved")
    page.get_by_role("tab", name="Failed messages").click()
    expect(page.get_by_text("Every message could be indexed.")).to_be_visible()
    console.list(f'instances?filter=uuid == "{make_uuid(1)}"')
    expect(page.locator("tbody tr")).to_have_count(1)


def test_a_message_that_nothing_helps_is_dropped(console: Console, fleet: ConsoleFleet) -> None:
    now = system_clock()
    cell = without_failures(fleet)
    summary = FailureSummary(str(uuid4()), cell.uuid, "malformed", "no <i>JSON</i>", None, now, now)
    fleet.fleet.failures.add([Failure(summary, "instance.update", {}, b"{")])
    page = console.open("index?tab=failures")
    failed = page.get_by_role("group", name="malformed")
    expect(failed).to_contain_text("no <i>JSON</i>")
    failed.get_by_role("button", name="Drop").click()
    page.get_by_role("dialog", name="Drop the message?").get_by_role("button", name="Drop").click()
    expect(page.get_by_text("It was dropped.")).to_be_visible()
    expect(failed).to_have_count(0)
