"""What ran how long, by project."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from fleetlight.api.compute.projects.tenant_usage import RanInstance, UsageQuery, instances_that_ran
from fleetlight.api.settings import ApiSettings
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from tests.contract.compute_fleet import Api, ComputeFleet, microversion

URL = "/v2.1/os-simple-tenant-usage"
NOON = 1_700_000_000_000_000  # 2023-11-14T22:13:20
HOUR = 3_600_000_000
SPAN = "start=2023-11-14T22:13:20&end=2023-11-15T02:13:20"
TOTALS = {
    "tenant_id",
    "start",
    "stop",
    "total_hours",
    "total_memory_mb_usage",
    "total_local_gb_usage",
    "total_vcpus_usage",
}
SERVER = {
    "instance_id",
    "name",
    "tenant_id",
    "flavor",
    "memory_mb",
    "local_gb",
    "vcpus",
    "hours",
    "started_at",
    "ended_at",
    "state",
    "uptime",
}
RED = {"X-Roles": "reader", "X-Project-Id": "red"}


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    """Three instances of red and one of blue, over all cells: 4, 2, 1 and 3 hours within the span."""
    _create(fleet, "north", "red", NOON - HOUR, None)
    _create(fleet, "east", "red", NOON + HOUR, NOON + 3 * HOUR, vm_state="deleted")
    _create(fleet, "south", "red", NOON - HOUR, NOON + HOUR)
    _create(fleet, "south", "red", NOON + 9 * HOUR, None)
    _create(fleet, "east", "blue", NOON + HOUR, None)
    return fleet


def _create(
    fleet: ComputeFleet, cell: str, project: str, launched_at: int, terminated_at: int | None, **values: Any
) -> None:
    flavor = fleet.fleet.flavors.find("2")
    times = {"created_at": launched_at, "launched_at": launched_at, "terminated_at": terminated_at}
    fleet.create(cell, project_id=project, flavor=flavor.payload(), instance_type_id=2, **times, **values)


def test_usage_of_all_projects_is_summed_up(api: Api) -> None:
    blue, red = api.get(f"{URL}?{SPAN}").json()["tenant_usages"]
    assert set(red) == TOTALS
    assert (red["tenant_id"], red["total_hours"]) == ("red", 7.0)
    assert (red["total_vcpus_usage"], red["total_memory_mb_usage"]) == (7.0, 7.0 * 2048)
    assert (red["start"], red["stop"]) == ("2023-11-14T22:13:20.000000", "2023-11-15T02:13:20.000000")
    assert (blue["tenant_id"], blue["total_hours"]) == ("blue", 3.0)


def test_usage_of_one_project_names_its_servers(api: Api) -> None:
    usage = api.get(f"{URL}/red?{SPAN}", RED).json()["tenant_usage"]
    assert set(usage) == TOTALS | {"server_usages"}
    assert all(set(server) == SERVER for server in usage["server_usages"])
    assert sorted(server["hours"] for server in usage["server_usages"]) == [1.0, 2.0, 4.0]
    assert {server["state"] for server in usage["server_usages"]} == {"active", "terminated"}


def test_servers_are_named_in_the_list_when_it_is_detailed(api: Api) -> None:
    assert "server_usages" in api.get(f"{URL}?{SPAN}&detailed=1").json()["tenant_usages"][0]
    assert "server_usages" not in api.get(f"{URL}?{SPAN}&detailed=True").json()["tenant_usages"][0]


def test_project_without_usage_has_an_empty_one(api: Api) -> None:
    assert api.get(f"{URL}/green?{SPAN}").json() == {"tenant_usage": {}}


def test_usage_has_pages_of_servers_from_2_40(api: Api) -> None:
    asked = microversion("2.40")
    hours = []
    url = f"{URL}?{SPAN}&detailed=1&limit=1"
    while url:
        page = api.get(url, asked).json()
        hours += [(usage["tenant_id"], usage["total_hours"]) for usage in page["tenant_usages"]]
        url = page.get("tenant_usages_links", [{"href": ""}])[0]["href"]
    assert sorted(hours) == [("blue", 3.0), ("red", 1.0), ("red", 2.0), ("red", 4.0)]
    single = api.get(f"{URL}/red?{SPAN}&limit=2", asked).json()
    assert "tenant_usage_links" in single
    assert api.get(f"{URL}?marker=nothing", asked).status_code == 400


@pytest.mark.parametrize(
    "query",
    [
        "start=yesterday",
        "start=2023-11-15T00:00:00&end=2023-11-14T00:00:00",
        "start=2999-01-01T00:00:00",
    ],
)
def test_wrong_span_is_refused(api: Api, query: str) -> None:
    assert api.get(f"{URL}?{query}").status_code == 400


def test_usage_is_read_by_its_project_and_by_administrators(api: Api) -> None:
    assert api.get(f"{URL}/blue?{SPAN}", RED).status_code == 403
    assert api.get(f"{URL}?{SPAN}", RED).status_code == 403
    assert api.get(f"{URL}/blue?{SPAN}").status_code == 200


def test_usage_is_incomplete_when_a_cell_goes_down_between_two_pages_of_it(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Counter[str]()

    def read(adapter: NativeAdapter, query: UsageQuery) -> Sequence[RanInstance]:
        name = adapter.cell.name
        asked[name] += 1
        if name == "south" and asked[name] > 1:
            raise CellUnreachableError(name, "it has just gone down")
        return instances_that_ran(adapter, query)

    # Until 2.39 an answer is made of as many pages as there are.
    api = fleet.api(settings=ApiSettings(max_limit=1))
    assert api.get(f"{URL}?{SPAN}").headers["Fleetlight-Complete"] == "true"
    monkeypatch.setattr("fleetlight.api.compute.projects.tenant_usage.instances_that_ran", read)
    answer = api.get(f"{URL}?{SPAN}")
    assert (answer.status_code, answer.headers["Fleetlight-Complete"]) == (200, "false")
    assert asked["south"] > 1
