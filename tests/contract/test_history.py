"""What became of an instance, as the changelog of its cell tells."""

from typing import Any

import pytest

from fleetlight.cells.model import RequestContext
from fleetlight.manager.operations.actions.accepting import Order
from fleetlight.manager.operations.native_cells import acceptance_in
from tests.contract.compute_fleet import MEMBER, ComputeFleet
from tests.contract.conftest import own_fleet

ADA = RequestContext("req-1", "ada", "demo")
OWNER = {**MEMBER, "X-Project-Id": "demo", "X-User-Id": "ada"}
fleet = own_fleet


def history(fleet: ComputeFleet, uuid: str, query: str = "", headers: dict[str, str] | None = None) -> Any:
    response = fleet.api().get(f"/fleetlight/servers/{uuid}/history?{query}", headers or {})
    assert response.status_code == 200, response.text
    return response.json()


def test_each_change_tells_when_who_and_what(fleet_of_any_store: ComputeFleet) -> None:
    fleet = fleet_of_any_store
    uuid = fleet.create("east", display_name="web", tags=["a"])
    acceptance = acceptance_in(fleet.native, fleet.fleet, fleet.cells["east"])
    acceptance.update(uuid, {"display_name": "api", "tags": ["a", "b"]}, ADA)
    found = history(fleet, uuid)
    renamed, created = found["history"]
    assert (renamed["revision"], renamed["event"]) == (2, "instance.update")
    assert (renamed["user_id"], renamed["project_id"], renamed["request_id"]) == ("ada", "demo", "req-1")
    assert renamed["changed"] == {"display_name": ["web", "api"], "tags": [["a"], ["a", "b"]]}
    assert renamed["at"].endswith("Z")
    assert created["revision"] == 1
    assert created["user_id"] is None
    assert created["changed"]["display_name"] == [None, "web"]
    assert found["before"] is None


def test_action_is_told_step_by_step(fleet: ComputeFleet) -> None:
    fleet.add_hosts()
    uuid = fleet.create("east", host="east-host0", node="east-host0", power_state=1)
    acceptance_in(fleet.native, fleet.fleet, fleet.cells["east"]).accept(uuid, Order("os-stop", request=ADA))
    fleet.work()
    found = history(fleet, uuid)["history"]
    assert [entry["changed"].get("vm_state") for entry in found] == [
        ["active", "stopped"],
        None,
        None,
        [None, "active"],
    ]
    assert [entry["changed"].get("task_state") for entry in found[:3]] == [
        ["powering-off", None],
        None,
        [None, "powering-off"],
    ]


def test_pages_go_on_before_a_revision(fleet: ComputeFleet) -> None:
    uuid = fleet.create("east", display_name="0")
    for number in range(1, 6):
        fleet.operations("east").update(uuid, {"display_name": str(number)})
    names, before = [], ""
    while True:
        page = history(fleet, uuid, f"limit=2{before}")
        names += [entry["changed"]["display_name"] for entry in page["history"]]
        if page["before"] is None:
            break
        before = f"&before={page['before']}"
    assert names == [["4", "5"], ["3", "4"], ["2", "3"], ["1", "2"], ["0", "1"], [None, "0"]]


def test_change_whose_predecessor_is_not_kept_says_so(fleet: ComputeFleet) -> None:
    uuid = fleet.create("east", display_name="old")
    fleet.number_changes()
    fleet.forget_changes("east")
    assert history(fleet, uuid)["history"] == []
    fleet.operations("east").update(uuid, {"display_name": "new"})
    [entry] = history(fleet, uuid)["history"]
    assert entry["changed"] is None


def test_deleted_instance_keeps_its_history(fleet: ComputeFleet) -> None:
    uuid = fleet.create("east")
    fleet.operations("east").delete(uuid)
    assert history(fleet, uuid)["history"][0]["changed"]["deleted"] == [False, True]


def test_members_see_their_servers_and_nothing_of_hosts(fleet: ComputeFleet) -> None:
    uuid = fleet.create("east", host="east-host0", node="east-host0")
    other = fleet.create("east", project_id="other")
    [entry] = history(fleet, uuid, headers=OWNER)["history"]
    assert {"host", "node", "launched_on"}.isdisjoint(entry["changed"])
    assert "display_name" in entry["changed"]
    assert "east" not in entry["publisher"]
    api = fleet.api()
    assert api.get(f"/fleetlight/servers/{other}/history", OWNER).status_code == 404
    assert api.get("/fleetlight/servers/nothing/history", OWNER).status_code == 404


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "before=-1", "before=1.5"])
def test_number_that_is_none_is_refused(fleet: ComputeFleet, query: str) -> None:
    uuid = fleet.create("east")
    assert fleet.api().get(f"/fleetlight/servers/{uuid}/history?{query}").status_code == 400
