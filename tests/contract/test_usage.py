"""`GET /fleetlight/usage`: who may ask for what, what is refused, and what an answer says of what it covers."""

import csv
import json
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import update

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import writing
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.tables import cell_state, instances
from tests.contract.compute_fleet import Api, ComputeFleet, compute_fleet

NOON = 1_700_000_000_000_000  # 2023-11-14T22:13:20
HOUR = 3_600_000_000
SPAN = "from=2023-11-14T22:13:20Z&to=2023-11-15T02:13:20Z"
URL = f"/fleetlight/usage?{SPAN}"
RED = {"X-Roles": "reader", "X-Project-Id": "red"}
NAMES = ("instances", "instance_hours", "vcpu_hours", "memory_gib_hours", "disk_gib_hours")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    """Three instances of red and one of blue: 4, 2, 1 and 3 hours within the span; and a reservation of red's."""
    with compute_fleet(tmp_path_factory.mktemp("usage")) as fleet:
        _create(fleet, "north", "red", NOON - HOUR, None)
        _create(fleet, "east", "red", NOON + HOUR, NOON + 3 * HOUR, vm_state="deleted", deleted=True)
        _create(fleet, "south", "red", NOON - HOUR, NOON + HOUR)
        _create(fleet, "south", "red", NOON + 9 * HOUR, None)
        _create(fleet, "east", "blue", NOON + HOUR, None, flavor="3")
        _create(fleet, "north", "red", NOON - HOUR, None, forthcoming=True, launched_at=None)
        yield fleet


def _create(fleet: ComputeFleet, cell: str, project: str, began: int, ended: int | None, **values: Any) -> str:
    flavor = values.pop("flavor", "2")
    times = {"created_at": began, "launched_at": began, "terminated_at": ended}
    return fleet.create(
        cell, **{"project_id": project, "flavor": fleet.fleet.flavors.find(flavor).payload(), **times, **values}
    )


def _rows(answer: Any) -> dict[tuple[str, ...], list[float]]:
    return {tuple(row[name] for name in answer["by"]): [row[name] for name in NAMES] for row in answer["usage"]}


def test_hours_of_a_project_are_those_of_its_instances_also_of_deleted_ones(api: Api) -> None:
    answer = api.get(URL)
    assert _rows(answer.json()) == {("blue",): [1, 3, 6, 12, 120], ("red",): [3, 7, 7, 14, 140]}
    assert [row["reserved_vcpu_hours"] for row in answer.json()["usage"]] == [0, 4]
    assert answer.json()["total"]["instance_hours"] == 10
    assert answer.json()["exact"]
    assert answer.headers["fleetlight-complete"] == "true"


def test_groups_come_in_the_order_that_was_asked_for(api: Api) -> None:
    answer = api.get(f"{URL}&by=cell,flavor").json()
    assert _rows(answer) == {
        ("east", "m1.medium"): [1, 3, 6, 12, 120],
        ("east", "m1.small"): [1, 2, 2, 4, 40],
        ("north", "m1.small"): [1, 4, 4, 8, 80],
        ("south", "m1.small"): [1, 1, 1, 2, 20],
    }
    assert _rows(api.get(f"{URL}&by=").json()) == {(): [4, 10, 13, 26, 260]}


def test_usage_of_a_project_is_what_its_tenant_usage_says(api: Api) -> None:
    span = "start=2023-11-14T22:13:20&end=2023-11-15T02:13:20"
    usages = api.get(f"/v2.1/os-simple-tenant-usage?{span}").json()["tenant_usages"]
    assert {row["project"]: row["vcpu_hours"] for row in api.get(URL).json()["usage"]} == {
        usage["tenant_id"]: usage["total_vcpus_usage"] for usage in usages
    }


def test_member_sees_its_own_project_and_no_cells(api: Api) -> None:
    answer = api.get(URL, RED)
    assert list(_rows(answer.json())) == [("red",)]
    assert answer.json()["cells"] is None
    assert answer.headers["fleetlight-route"] == "cells"
    refused = api.get(f"{URL}&by=cell", RED)
    assert (refused.status_code, refused.json()["badRequest"]["message"]) == (
        400,
        "by: 'cell' is not one of project, flavor",
    )


def test_period_is_the_four_weeks_until_its_end_unless_its_begin_is_given(api: Api) -> None:
    answer = api.get("/fleetlight/usage?to=2023-11-15T02:13:20Z").json()
    assert (answer["from"], answer["to"]) == ("2023-10-18T02:13:20.000000Z", "2023-11-15T02:13:20.000000Z")


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ("from=yesterday", "from: 'yesterday' is no time with its zone"),
        ("from=2023-11-15T00:00:00Z&to=2023-11-15T00:00:00Z", "from: 2023-11-15T00:00:00.000000Z is not before to"),
        ("from=2023-11-15T00:00:00Z&to=2999-01-01T00:00:00Z", "to: 2999-01-01T00:00:00.000000Z is still to come"),
        ("from=2999-01-01T00:00:00Z", "from: 2999-01-01T00:00:00.000000Z is not before to"),
        ("to=0001-01-05T00:00:00Z", "from: 1970-01-01T00:00:00.000000Z is not before to"),
        (f"{SPAN}&by=project,color", "by: 'color' is not one of project, flavor, cell"),
        (f"{SPAN}&format=xml", "format: 'xml' is not one of json, csv"),
    ],
)
def test_what_cannot_be_added_up_is_refused_by_name(api: Api, asked: str, complaint: str) -> None:
    answer = api.get(f"/fleetlight/usage?{asked}")
    assert answer.status_code == 400
    assert answer.json()["badRequest"]["message"].startswith(complaint)


def test_csv_is_a_header_and_records_and_says_last_what_it_covers_if_asked_to(api: Api) -> None:
    answer = api.get(f"{URL}&by=project,flavor&format=csv&remarks=1")
    plain = api.get(f"{URL}&by=project,flavor&format=csv")
    assert plain.text.splitlines() == answer.text.splitlines()[:-1]
    assert plain.headers["content-disposition"] == 'attachment; filename="usage.csv"'
    assert answer.headers["content-type"].startswith("text/csv")
    columns, *records, [remark] = csv.reader(answer.text.splitlines())
    covers = json.loads(remark.removeprefix("# "))
    assert (covers["complete"], covers["exact"], covers["from"]) == (True, True, "2023-11-14T22:13:20.000000Z")
    assert columns[:4] == ["project", "flavor", "instances", "instance_hours"]
    assert [record[:5] for record in records] == [
        ["blue", "m1.medium", "1", "3.0", "6.0"],
        ["red", "m1.small", "3", "7.0", "7.0"],
    ]


def test_more_groups_than_an_answer_has_are_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlight.listing.usage.MAX_GROUPS", 1)
    assert api.get(f"{URL}&by=flavor", RED).status_code == 200
    answer = api.get(f"{URL}&by=project")
    assert answer.status_code == 400
    assert answer.json()["badRequest"]["message"].startswith("by: there are more than 1 groups")


def test_cell_says_from_when_on_it_knows_every_change(fleet: ComputeFleet, api: Api) -> None:
    with writing(fleet.engine("south")) as connection:
        connection.execute(update(cell_state).values(forgotten_until=NOON + HOUR))
    try:
        answer = api.get(URL).json()
    finally:
        with writing(fleet.engine("south")) as connection:
            connection.execute(update(cell_state).values(forgotten_until=0))
    assert not answer["exact"]
    covered = {each["cell"]: (each["covered_from"], each["exact"], each["exact_from"]) for each in answer["cells"]}
    [why] = filter(None, (each["why"] for each in answer["cells"]))
    start = "2023-11-14T22:13:20.000000Z"
    assert covered["north"] == (start, True, start)
    assert covered["south"] == (start, False, "2023-11-14T23:13:20.000000Z")
    assert why.startswith("it keeps changes since 2023-11-14T23:13:20.000000Z: before,")
    assert _rows(answer) == _rows(api.get(URL).json())


def test_pages_of_a_cell_add_up_to_the_same(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = api.get(f"{URL}&by=project,cell").json()
    monkeypatch.setattr("fleetlight.cells.usage._PAGE_ROWS", 1)
    assert api.get(f"{URL}&by=project,cell").json() == whole


def test_cell_that_is_down_is_named_and_counts_for_nothing(fleet: ComputeFleet, api: Api) -> None:
    lost = fleet.fleet.add_cell("lost", CellKind.NATIVE, "sqlite:////nowhere/lost.db", "memory://")
    clusters = fleet.fleet.add_cell("cluster", CellKind.GANETI, "https://127.0.0.1:1", "")
    pool = CellPool(fleet.fleet.cells, open_adapter)
    try:
        answer = fleet.api(pool=pool).get(URL)
    finally:
        fleet.close_pool(pool)
        for cell in (lost, clusters):
            fleet.fleet.set_disabled(cell.uuid, True)
            fleet.fleet.remove_cell(fleet.fleet.cell(cell.uuid))
    assert answer.headers["fleetlight-complete"] == "false"
    assert not answer.json()["exact"]
    assert _rows(answer.json()) == _rows(api.get(URL).json())
    named = {each["cell"]: each for each in answer.json()["cells"] if each["covered_from"] is None}
    assert set(named) == {"lost", "cluster"}
    assert named["cluster"]["why"].startswith("it knows neither when its instances were launched")
    assert named["lost"]["why"]


def test_damaged_row_is_named_and_the_others_count(fleet: ComputeFleet, api: Api) -> None:
    uuid = _create(fleet, "north", "green", NOON, None)
    with writing(fleet.engine("north")) as connection:
        connection.exec_driver_sql("UPDATE instances SET flavor = 'no JSON' WHERE uuid = ?", (uuid,))
    try:
        answer = api.get(URL)
    finally:
        with writing(fleet.engine("north")) as connection:
            connection.execute(instances.delete().where(instances.c.uuid == uuid))
    assert answer.headers["fleetlight-complete"] == "false"
    assert _rows(answer.json())["red",] == [3, 7, 7, 14, 140]
    why = {each["cell"]: each["why"] for each in answer.json()["cells"]}
    assert why == {"north": "damaged rows are not counted", "east": None, "south": None}
