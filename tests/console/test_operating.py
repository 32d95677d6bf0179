"""What operators see and do: how cells are, what fits, what the index needs."""

import re
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from uuid import uuid4

from playwright.sync_api import Page, expect

from fleetlight.cells.fleet.failures import Failure, FailureSummary
from fleetlight.resources.clock import system_clock
from tests.support.fleets.console_fleet import ConsoleFleet
from tests.support.fleets.documents import make_uuid
from tests.support.pages.console import Console
from tests.support.played.producers import let_announce, refused_announcement


def test_a_cell_that_dies_is_seen_on_the_board(console: Console, fleet: ConsoleFleet) -> None:
    page = console.open("cells")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="cell2"))
    expect(row).to_contain_text("✓ well")
    expect(row.get_by_role("cell", name="changes", exact=True)).to_be_visible()
    with fleet.without("cell2"):
        expect(row).to_contain_text("✕ down")
        expect(page.get_by_role("status").first).to_contain_text("1 down")
        console.watched.axe()
        page.keyboard.press("g")
        page.keyboard.press("p")
        expect(console.badge).to_contain_text("⚠ not complete")
        page.go_back()
    expect(row).to_contain_text("✓ well")


def live(console: Console, address: str) -> Page:
    """A list in which changes come. It is read once more then, since it may be older than the first of them."""
    page = console.list(address)
    with page.expect_response(re.compile(r"/fleetlight/query\?")):
        expect(page.get_by_role("button", name="● live")).to_be_visible()
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
    fleet.force_down("cell1", "cell1-compute-03")
    expect(console.row(0).get_by_role("cell", name="O", exact=True)).to_be_visible()


def vcpus(page: Page, cell: str) -> str:
    """What the board says of the processors of a cell."""
    row = page.get_by_role("table", name="By cell").get_by_role("row").filter(has_text=cell)
    return row.get_by_role("cell").nth(1).inner_text().strip()


def test_what_is_reserved_counts_until_it_is_cancelled_or_real(console: Console) -> None:
    page = console.open("capacity")
    page.get_by_role("table", name="By cell").wait_for()
    before = [vcpus(page, cell) for cell in ("cell1", "cell2")]
    page.get_by_role("button", name="Reserve").click()
    form = page.get_by_role("dialog", name="Reserve capacity")
    form.get_by_label("Name").fill("batch-1.example.org")
    form.get_by_label("vCPU").fill("3")
    form.get_by_label("Operating system").fill("debian-12")
    console.watched.axe()
    form.get_by_role("button", name="Reserve").click()
    expect(page.get_by_text("batch-1.example.org is reserved.")).to_be_visible()
    expect(page.get_by_role("table", name="By cell")).to_contain_text("3 reserved")
    page.get_by_role("button", name="Count").click()
    expect(page.get_by_text("if nothing were reserved")).to_have_count(1)

    console.list("reservations")
    page.get_by_role("link", name="batch-1.example.org").click()
    console.watched.axe()
    page.get_by_role("button", name="Make it real").click()
    asked = page.get_by_role("dialog", name="Make it real?")
    expect(asked).to_contain_text("made on the node that is reserved")
    asked.get_by_role("button", name="Make it real").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    console.open("capacity")
    page.get_by_role("table", name="By cell").wait_for()
    expect(page.get_by_role("table", name="By cell")).not_to_contain_text("3 reserved")
    assert [vcpus(page, cell) for cell in ("cell1", "cell2")] != before


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


def test_room_is_found_down_to_the_node_and_what_is_on_it(console: Console) -> None:
    page = console.open("capacity")
    page.get_by_role("table", name="By cell").get_by_role("link", name="cell1").click()
    nodes = page.get_by_role("table", name="Nodes of cell1")
    # The one with the least memory free, so there are instances on it.
    name = nodes.get_by_role("link").last.inner_text()
    console.watched.axe()
    nodes.get_by_role("link").last.click()
    expect(page.get_by_role("heading", name="Instances")).to_be_visible()
    expect(console.filter).to_have_value(f'pnode == "{name}" and cell == "cell1"')
    console.row(0).get_by_role("link").first.wait_for()


def test_work_on_the_index_is_started_and_followed_to_its_end(console: Console) -> None:
    page = console.open("index")
    for kind in ("verify", "rebuild"):
        page.get_by_label("Work").first.select_option(kind)
        page.get_by_role("button", name="Start").click()
        if kind == "rebuild":
            page.get_by_role("dialog", name="rebuild the index?").get_by_role("button", name="rebuild").click()
        expect(page.get_by_role("region", name=f"{kind}, done")).to_contain_text(
            re.compile("by .*, started .*, ended"), timeout=60_000
        )
    console.watched.axe()
    page.get_by_label("Cells").fill("nowhere")
    page.get_by_label("Work").first.select_option("sync")
    console.watched.expect_status(400, "/fleetlight/index/work")
    console.watched.expect_status(404, "/fleetlight/index/work")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert")).to_contain_text("nowhere")


def test_nothing_is_lost_that_changes_while_the_index_is_rebuilt(console: Console, fleet: ConsoleFleet) -> None:
    page = console.open("index")
    made: list[str] = []
    is_done = Event()

    def change() -> None:
        while not is_done.is_set():
            made.append(f"rebuilt-{len(made)}")
            fleet.create("cell1", display_name=made[-1])

    with ThreadPoolExecutor(1) as thread:
        changing = thread.submit(change)
        try:
            page.get_by_label("Work").first.select_option("rebuild")
            page.get_by_role("button", name="Start").click()
            page.get_by_role("dialog").get_by_role("button", name="rebuild").click()
            expect(page.get_by_role("region", name="rebuild, done").first).to_be_visible(timeout=60_000)
        finally:
            is_done.set()
        changing.result()
    page = console.list("instances?filter=rebuilt-")
    expect(page.get_by_role("status")).to_have_text(f"{len(made):,}")
    expect(console.badge).to_contain_text("✓ complete")


def test_a_message_that_failed_is_tried_again_once_its_reason_is_removed(console: Console, fleet: ConsoleFleet) -> None:
    cell = fleet.fleet.cell("cell1")
    fleet.fleet.failures.add([refused_announcement(cell)])
    page = console.open("cells")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="cell1"))
    row.get_by_role("link", name="1", exact=True).click()
    failed = page.get_by_role("region", name="refused")
    expect(failed).to_contain_text("its producer is not known")
    failed.get_by_text("The message").click()
    console.watched.axe()
    failed.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("status")).to_contain_text("It is tried again.")
    page.get_by_role("tab", name="Work").click()
    expect(page.get_by_role("region", name="retry, failed")).to_be_visible()

    let_announce(fleet.fleet, cell)
    page.get_by_role("tab", name="Failed messages").click()
    failed.get_by_role("button", name="Try again").click()
    page.get_by_role("tab", name="Work").click()
    expect(page.get_by_role("region", name="retry, done")).to_contain_text("1 solved, 0 not solved")
    page.get_by_role("tab", name="Failed messages").click()
    expect(page.get_by_text("Every message could be indexed.")).to_be_visible()
    console.list(f'instances?filter=uuid == "{make_uuid(1)}"')
    expect(page.locator("tbody tr")).to_have_count(1)


def test_a_message_that_nothing_helps_is_dropped(console: Console, fleet: ConsoleFleet) -> None:
    now = system_clock()
    cell = fleet.fleet.cell("cell1").uuid
    summary = FailureSummary(str(uuid4()), cell, "malformed", "no <i>JSON</i>", None, now, now)
    fleet.fleet.failures.add([Failure(summary, "instance.update", {}, b"{")])
    page = console.open("index?tab=failures")
    failed = page.get_by_role("region", name="malformed")
    expect(failed).to_contain_text("no <i>JSON</i>")
    failed.get_by_role("button", name="Drop").click()
    page.get_by_role("dialog", name="Drop the message?").get_by_role("button", name="Drop").click()
    expect(page.get_by_text("It was dropped.")).to_be_visible()
    expect(failed).to_have_count(0)
