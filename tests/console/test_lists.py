"""Looking for instances: by words and keys, by what there is of each value, then and now, and while a cell is away."""

import csv
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import expect

from fleetlight.resources.clock import system_clock
from tests.support.fleets.console_fleet import ConsoleFleet, console_fleet
from tests.support.pages.console import Console
from tests.support.servers.real_servers import own_prefix


@pytest.fixture(scope="module", params=["sqlite", pytest.param("elasticsearch", marks=pytest.mark.elasticsearch)])
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleFleet]:
    """With an index of each kind."""
    index: dict[str, str] = {}
    with ExitStack() as stack:
        if request.param == "elasticsearch":
            url = request.getfixturevalue("elasticsearch_url")
            index = {
                "BACKEND": "elasticsearch",
                "URLS": json.dumps([url]),
                "PREFIX": stack.enter_context(own_prefix(url)),
            }
        variables = {f"FLEETLIGHT_INDEX_{key}": value for key, value in index.items()}
        yield stack.enter_context(console_fleet(tmp_path_factory.mktemp("fleet"), **variables))


# What neither counts nor lists by the index in a way of its own is the same with each.
with_one_index = pytest.mark.parametrize("fleet", ["sqlite"], indirect=True)


@pytest.fixture(scope="module", autouse=True)
def ours(fleet: ConsoleFleet) -> None:
    """Three instances of the project payroll, two of them on one host."""
    for name, cell, number in [("pay-a", "cell1", "03"), ("pay-b", "cell1", "03"), ("pay-c", "cell2", "05")]:
        host = f"{cell}-compute-{number}"
        fleet.create(cell, display_name=name, project_id="payroll", host=host, node=f"{host}.example.org")


@with_one_index
def test_instances_of_a_project_on_a_host_are_found_without_a_mouse(console: Console) -> None:
    page = console.list("instances")
    page.keyboard.press("/")
    expect(console.filter).to_be_focused()
    page.keyboard.type("project_i")
    expect(page.get_by_role("option", name=re.compile("^project_id "))).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(console.filter).to_have_value("project_id ")
    page.keyboard.type('== "payr')
    page.get_by_role("option", name=re.compile('^"payroll"')).wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type(' and host == "cell1-compute-03"')
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(console.named("pay-a")).to_be_visible()
    expect(console.named("pay-b")).to_be_visible()
    assert "payroll" in page.url
    expect(console.badge).to_contain_text("complete")


@with_one_index
def test_moments_before_the_list_are_offered_for_a_field_of_time(console: Console) -> None:
    page = console.list("instances")
    console.filter.fill('project_id == "payroll" and created_at > ')
    page.get_by_role("option", name=re.compile('"1h ago"')).click()
    console.filter.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_text("Add a condition").click()
    page.get_by_label("Field").select_option("created_at")
    page.get_by_label("Comparison").select_option("<")
    page.get_by_label("Value", exact=True).fill("1d ago")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(console.filter).to_have_value(re.compile('and created_at < "1d ago"$'))
    expect(page.get_by_text("The filter lets no instance pass.")).to_be_visible()


def test_a_click_on_a_count_writes_the_condition(console: Console) -> None:
    page = console.list("instances")
    counted = page.get_by_role("button", name=re.compile("payroll"))
    expect(counted).to_contain_text("3")
    counted.click()
    expect(console.filter).to_have_value('project_id == "payroll"')
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(counted).to_have_attribute("aria-pressed", "true")
    counted.click()
    expect(console.filter).to_have_value("")


@with_one_index
def test_a_mistyped_field_is_refused_with_the_one_that_was_meant(console: Console) -> None:
    console.watched.expect_status(400, "/fleetlight/query")
    page = console.list("instances")
    console.filter.fill('projct_id == "payroll"')
    console.filter.press("Enter")
    page.get_by_role("alert").get_by_role("button", name="project_id").click()
    expect(page.locator("tbody tr")).to_have_count(3)


def test_rows_of_a_cell_that_dies_meanwhile_stay_and_are_dated(console: Console, fleet: ConsoleFleet) -> None:
    page = console.list('instances?filter=project_id == "payroll"')
    expect(console.badge).to_have_text(re.compile("^ ?complete"))
    with fleet.without("cell2"):
        refresh = page.get_by_role("button", name="Refresh")
        refresh.click()
        page.wait_for_function(
            """() => document.querySelector(".badge.partial") !== null
                || void [...document.querySelectorAll(".tools button:not(:disabled)")]
                    .find((button) => button.textContent === "Refresh")?.click()""",
            polling=500,
        )
        expect(console.badge).to_contain_text("cell2 does not answer")
        expect(console.named("pay-c")).to_have_class(re.compile("away"))
        expect(console.named("pay-c")).to_have_attribute("title", re.compile("does not answer; known .* ago"))
        expect(console.named("pay-a")).not_to_have_class(re.compile("away"))
        console.badge.click()
        expect(page.get_by_role("dialog").get_by_role("row").filter(has_text="cell2")).to_contain_text("while-down")
        page.get_by_role("dialog").get_by_role("button", name="Explain").click()
        expect(page.get_by_role("dialog").get_by_text("cell2: index-while-down")).to_be_visible()
        page.keyboard.press("Escape")
        console.watched.axe()


def test_what_changed_since_a_moment_is_shown(console: Console, fleet: ConsoleFleet, own: str) -> None:
    stopped = fleet.create("cell1", display_name="then-active", project_id=own)
    moment = datetime.fromtimestamp(system_clock() / 1e6, UTC).isoformat().replace("+00:00", "Z")
    fleet.stop("cell1", stopped)
    fleet.create("cell2", display_name="not-there-then", project_id=own)
    page = console.list(f'instances?filter=project_id == "{own}"&order=name')
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("button", name="Past").click()
    page.get_by_label("As of").wait_for()
    console.list(f'instances?filter=project_id == "{own}"&past=1&as_of={moment}')
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(console.named("then-active")).to_contain_text("active")
    page.get_by_role("button", name="Compare with now").click()
    expect(page.locator("tbody tr").filter(has_text="not-there-then")).to_be_visible()
    changed = page.locator("tbody tr").filter(has_text="then-active")
    expect(changed.locator("del")).to_have_text(["active"])
    expect(changed.locator("ins")).to_have_text(["stopped"])
    console.watched.axe()
    page.get_by_role("button", name="Now", exact=True).click()
    expect(page.locator("tbody tr")).to_have_count(2)


@with_one_index
def test_headings_that_cannot_sort_are_no_buttons_and_no_order_takes_rows_away(console: Console) -> None:
    page = console.list('instances?filter=project_id == "payroll"&columns=name,status,cell&order=-status')
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.get_by_role("columnheader", name="Status").get_by_role("button")).to_have_count(0)
    page.get_by_role("columnheader", name="Instance").get_by_role("button").click()
    expect(console.row(0)).to_contain_text("pay-c")
    heading = page.get_by_role("columnheader", name="Cell")
    for direction, last in (("ascending", "cell2"), ("descending", "cell1")):
        heading.get_by_role("button").click()
        expect(heading).to_have_attribute("aria-sort", direction)
        expect(console.row(2)).to_contain_text(last)


@with_one_index
def test_a_view_that_was_saved_is_opened_again(console: Console, own: str) -> None:
    page = console.list('instances?filter=project_id == "payroll"&columns=name,host')
    page.get_by_role("button", name="Views").click()
    page.get_by_label("Save this one as").fill(f"{own} <b>hosts</b>")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("button", name=f"{own} <b>hosts</b>", exact=True).wait_for()
    console.list("instances")
    page.get_by_role("button", name="Views").click()
    page.get_by_role("button", name=f"{own} <b>hosts</b>", exact=True).click()
    expect(console.filter).to_have_value('project_id == "payroll"')
    expect(page.get_by_role("columnheader")).to_have_count(2)
    expect(page.locator("tbody tr")).to_have_count(3)


@pytest.mark.parametrize("form", ["CSV", "JSON lines"])
def test_an_exported_file_has_all_rows_and_says_what_it_covers(console: Console, tmp_path: Path, form: str) -> None:
    page = console.list('instances?filter=project_id == "payroll"&columns=name,host&order=name')
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("link", name=form).click()
    path = tmp_path / "export"
    download.value.save_as(path)
    text = path.read_text()
    if form == "CSV":
        assert download.value.suggested_filename == "instance.csv"
        header, *rows = csv.reader(text.splitlines())
        assert {"name", "host"} <= set(header)
    else:
        begun, *rows, ended = map(json.loads, text.splitlines())
        assert (begun["filter"], begun["complete"]) == ('project_id == "payroll"', True)
        assert ended == {"rows": 3, "complete": True}
    assert [name in str(row) for name, row in zip(["pay-a", "pay-b", "pay-c"], rows, strict=True)] == [True] * 3


@with_one_index
def test_keys_move_open_and_lead_to_pages(console: Console) -> None:
    page = console.list('instances?filter=project_id == "payroll"&order=name')
    expect(console.row(0)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(console.row(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="pay-b")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(page.get_by_role("heading", name="Cells")).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Page, instance or action")).to_be_focused()
    page.keyboard.type("pay-c")
    page.get_by_role("option", name=re.compile("pay-c")).wait_for()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="pay-c")).to_be_visible()


@with_one_index
def test_a_list_says_what_is_not_there_and_what_to_do_then(console: Console) -> None:
    page = console.open("reservations")
    expect(page.get_by_text("No reservation yet")).to_be_visible()
    expect(page.get_by_role("link", name="Reserve capacity")).to_be_visible()
    console.open('instances?filter=name == "nobody"')
    expect(page.get_by_text("The filter lets no instance pass.")).to_be_visible()
    page.get_by_role("button", name="All instances").click()
    expect(console.row(0)).to_be_visible()


@with_one_index
def test_nothing_is_loading_for_ever_after_an_outage(console: Console) -> None:
    page = console.list("instances")
    console.watched.expect_outage()
    page.context.set_offline(True)
    page.get_by_role("navigation").get_by_role("link", name="Nodes").click()
    expect(page.get_by_role("alert")).to_contain_text("The API does not answer.")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    page.context.set_offline(False)
    expect(console.row(0)).to_contain_text("compute")


@with_one_index
def test_panels_and_tabs_are_named_after_what_they_show(console: Console) -> None:
    page = console.list("nodes")
    expect(page).to_have_title("Nodes · Fleetlight")
    console.row(0).get_by_role("link").click()
    name = console.row(0).get_by_role("link").inner_text()
    expect(page.get_by_role("heading", name=f"Node {name}")).to_be_visible()
    expect(page).to_have_title(f"Node {name} · Fleetlight")
    console.list('instances?filter=name == "pay-a"')
    page.get_by_role("link", name="pay-a").click()
    expect(page).to_have_title("pay-a · Fleetlight")


@with_one_index
def test_back_leads_to_the_row_that_was_left(console: Console) -> None:
    page = console.list("instances")
    scroller = page.get_by_role("region", name="Instances")
    scroller.evaluate("element => element.scrollTo(0, 560)")
    row = console.row(25)
    name = row.get_by_role("link").inner_text()
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    page.go_back()
    expect(row).to_have_attribute("aria-selected", "true")
    expect(row.get_by_role("link")).to_have_text(name)
    expect(row).to_be_in_viewport()
    assert scroller.evaluate("element => element.scrollTop") > 400


@with_one_index
def test_a_member_gets_the_list_of_an_operators_link_without_what_only_operators_see(member: Console) -> None:
    page = member.list('instances?columns=name,cell,host,vm_state&filter=cell == "cell1" and vm_state == "active"')
    expect(page.get_by_role("columnheader")).to_have_text([re.compile("Instance"), "State"])
    expect(page.get_by_text('only administrators see it: cell, host, cell == "cell1".')).to_be_visible()
    expect(member.filter).to_have_value('vm_state == "active"')


@with_one_index
def test_who_logs_in_behind_somebody_else_sees_the_fields_of_their_own_role(console: Console) -> None:
    page = console.list("instances?columns=name,host")
    expect(page.get_by_role("columnheader")).to_have_text([re.compile("Instance"), "Host"])
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("User").fill("demo")
    page.get_by_label("Password").fill(console.fleet.password("demo"))
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("columnheader")).to_have_text([re.compile("Instance")])
    console.row(0).get_by_role("link").first.wait_for()
