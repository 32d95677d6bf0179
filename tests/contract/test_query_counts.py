"""Counts of what no store counts: fields that are made of several, conditions on them, and items of every type."""

from typing import Any
from urllib.parse import urlencode

import pytest

from fleetlight.api.settings import ApiSettings
from fleetlight.manager.operations.native_cells import nodes_in
from tests.contract.compute_fleet import CELLS, MEMBER, Api, BrokenCells, ComputeFleet, searching
from tests.contract.conftest import own_fleet
from tests.contract.test_query import LARGE, ROUTES, api_by, fill
from tests.contract.test_query_items import queue_a_stop

fleet = own_fleet


def counted(api: Api, **parameters: str) -> Any:
    asked = {"all_projects": "1"} | parameters
    response = api.get(f"/fleetlight/query/counts?{urlencode(asked)}")
    assert response.status_code == 200, response.text
    return response


def groups(api: Api, **parameters: str) -> dict[tuple[Any, ...], int]:
    response = counted(api, **parameters)
    assert response.headers["fleetlight-complete"] == "true"
    assert response.json()["partial"] is False
    return {tuple(group["by"].values()): group["count"] for group in response.json()["groups"]}


@pytest.mark.parametrize("route", ROUTES)
def test_instances_are_counted_by_what_is_made_of_several_fields(fleet: ComputeFleet, route: str) -> None:
    fill(fleet)
    # More pages than one, so that pages are put together.
    fleet_api = api_by(fleet, route)
    assert groups(fleet_api, by="status,cell") == {
        (status, cell): 2 for status in ("running", "ADMIN_down") for cell in CELLS
    }
    assert groups(fleet_api, by="be/memory") == {(512,): 8, (8192,): 4}
    assert groups(fleet_api, filter="be/memory > 1024") == {(): 4}
    assert groups(fleet_api, by="vm_state", filter='be/memory > 1024 and cell == "north"') == {
        ("active",): 2,
        ("stopped",): 2,
    }
    assert groups(fleet_api, filter="be/memory > 100000") == {(): 0}


def test_pages_of_a_count_are_put_together(fleet: ComputeFleet) -> None:
    fill(fleet)
    assert groups(fleet.api(settings=ApiSettings(max_limit=5)), by="be/memory") == {(512,): 8, (8192,): 4}


@pytest.mark.parametrize("route", ROUTES)
def test_what_has_no_value_says_why_by_every_route(fleet: ComputeFleet, route: str) -> None:
    fill(fleet)
    fleet.create("east", display_name="unplaced", node=None)
    fleet.index("east")
    api = api_by(fleet, route)
    for more in ({}, {"filter": "be/memory >= 0 or be/memory < 0"}):
        found = counted(api, by="pnode", **more).json()["groups"]
        assert [(group["by"]["pnode"], group["statuses"]["pnode"], group["count"]) for group in found] == [
            ("node0", 0, 6),
            ("node1", 0, 6),
            (None, 2, 1),
        ]
    assert counted(api, by="os").json()["groups"] == [{"by": {"os": None}, "statuses": {"os": 3}, "count": 13}]


def test_nodes_groups_jobs_and_locks_are_counted(fleet: ComputeFleet) -> None:
    fleet.add_hosts()
    queue_a_stop(fleet, "north")
    nodes = nodes_in(fleet.native, fleet.cells["east"])
    nodes.update_service(nodes.services()[0].uuid, disabled=True)
    api = fleet.api()
    assert groups(api, what="node", by="cell,role") == {
        ("east", "D"): 1,
        ("east", "R"): 1,
        ("north", "R"): 2,
        ("south", "R"): 2,
    }
    assert groups(api, what="node", filter="mtotal > 1000 and not drained") == {(): 5}
    assert groups(api, what="group", by="node_list", filter='cell == "south"') == {
        ("south-host0",): 1,
        ("south-host1",): 1,
    }
    assert groups(api, what="job", by="status") == {("queued",): 1}
    assert groups(api, what="job", by="summary") == {("SERVER_STOP(busy)",): 1}
    assert groups(api, what="lock", by="cell") == {("north",): 1}
    assert groups(api, what="network") == {(): 0}


def test_cell_that_is_down_makes_a_count_incomplete(fleet: ComputeFleet) -> None:
    fill(fleet)
    fleet.add_hosts()
    api = fleet.api(search=searching(enabled=False), pool=BrokenCells(fleet, failing_after={"east": 0}))
    for parameters in ({"by": "be/memory"}, {"what": "node", "by": "cell"}):
        response = counted(api, **parameters)
        assert response.headers["fleetlight-complete"] == "false"
        assert "east=skipped" in response.headers["fleetlight-route"]
        assert sum(group["count"] for group in response.json()["groups"]) in {8, 4}


def test_members_count_what_they_may_see(fleet: ComputeFleet) -> None:
    fleet.create("east", project_id="demo", **LARGE)
    fleet.create("east", project_id="other", **LARGE)
    fleet.index()
    member = {**MEMBER, "X-Project-Id": "demo", "X-User-Id": "ada"}
    api = fleet.api()
    for query in ("by=be/memory", "filter=be/memory>1", "by=status"):
        found = api.get(f"/fleetlight/query/counts?{query}", member).json()["groups"]
        assert [group["count"] for group in found] == [1]
    assert api.get("/fleetlight/query/counts?by=hypervisor", member).status_code == 400
    assert api.get("/fleetlight/query/counts?what=node", member).status_code == 404


def test_body_says_how_many_fields_there_may_be(fleet: ComputeFleet) -> None:
    body = {"what": "node", "by": ["name", "cell", "role", "group", "uuid"]}
    refused = fleet.api().request("POST", "/fleetlight/query/counts", json=body)
    assert refused.status_code == 400
    assert "by: 5 of them; there may be 4" in refused.text
