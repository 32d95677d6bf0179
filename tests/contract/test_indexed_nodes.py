"""Lists of nodes from the index, and from the cells: the same answers, on every face that asks."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import pytest

from fleetlight.resources.node import NOT_STORED, STORED_NODE_FIELDS
from tests.contract.answering import INDEX_KINDS, fleet_with_index
from tests.contract.compute_fleet import CELLS, Api, BrokenCells, ComputeFleet, searching
from tests.support.fleets.changing_nodes import ChangingNodes

ALL_FIELDS = ",".join(sorted(STORED_NODE_FIELDS))
STRONG: Mapping[str, str] = {"Fleetlight-Consistency": "strong"}


@pytest.fixture(scope="module", params=INDEX_KINDS)
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    """Nodes that differ in all that may differ, in an index of each kind. Tests change nothing of it."""
    with fleet_with_index(request.param, tmp_path_factory.mktemp("nodes"), request) as fleet:
        for name in CELLS:
            hosts = [f"{name}-host{number}" for number in (1, 2, 10)]
            nodes = ChangingNodes(fleet.engine(name), fleet.fleet, fleet.cells[name], hosts)
            nodes.add_group("rack7")
            nodes.assign(hosts[0], "rack7")
            nodes.set_group("rack7", spindle_count=3)
            nodes.tag(hosts[1], "fast")
            nodes.set_node(hosts[2], ndparams={"exclusive_storage": True}, secondary_ip="192.0.2.9")
            nodes.disable(hosts[1], disabled=True)
            nodes.force_down(hosts[2], forced_down=True)
        fleet.index()
        yield fleet


def asked(api: Api, *headers: Mapping[str, str], **query: str) -> Any:
    response = api.get(f"/fleetlight/query?{urlencode({'what': 'node', **query})}", *headers)
    assert response.status_code == 200, response.text
    return response


def routes(answer: Any) -> set[str]:
    """Where the rows of the cells came from."""
    return set(re.findall(r"=([a-z-]+)", re.sub(r";[a-z]+=[^,;]+", "", answer.headers["Fleetlight-Route"])))


@pytest.mark.parametrize(
    "query",
    [
        {"fields": ALL_FIELDS},
        {"fields": "name,ctotal", "order": "-name", "limit": "4"},
        {"fields": "name,group", "filter": '"fast" in tags or ndp/spindle_count == 3'},
        {"fields": "name", "filter": "offline and not drained"},
        {"fields": "name,uuid", "filter": 'cell == "north"', "order": "role,name"},
        {"fields": "name", "filter": "ctotal > 1"},
    ],
)
def test_index_and_cells_give_the_same_answer(fleet: ComputeFleet, query: dict[str, str]) -> None:
    api = fleet.api()
    indexed, live = asked(api, **query), asked(api, STRONG, **query)
    assert (routes(indexed), routes(live)) == ({"index"}, {"live"})
    assert indexed.json()["data"] == live.json()["data"]
    assert indexed.json()["data"], "there is something to compare"
    assert indexed.headers["Fleetlight-Complete"] == live.headers["Fleetlight-Complete"] == "true"


@pytest.mark.parametrize("name", sorted(NOT_STORED))
def test_what_depends_on_instances_comes_from_the_cells(fleet: ComputeFleet, name: str) -> None:
    assert routes(asked(fleet.api(), fields=f"name,{name}")) == {"live"}


def test_nodes_of_ganetis_remote_api_come_from_the_index(fleet: ComputeFleet) -> None:
    address = f"/2/query/node?{urlencode({'fields': 'name,offline,group,tags'})}"
    before = fleet.searcher.asked
    indexed = fleet.api().get(address).json()["data"]
    assert len(indexed) == 9
    assert fleet.searcher.asked > before
    assert indexed == fleet.api(search=searching(enabled=False)).get(address).json()["data"]


def test_cell_that_is_down_is_answered_by_the_index(fleet: ComputeFleet) -> None:
    down = BrokenCells(fleet, failing_after={"east": 0})
    fresh = asked(fleet.api(pool=down), fields="name")
    assert (routes(fresh), fresh.headers["Fleetlight-Complete"]) == ({"index"}, "true")
    strong = asked(fleet.api(pool=down), STRONG, fields="name")
    assert (len(strong.json()["data"]), strong.headers["Fleetlight-Complete"]) == (6, "false")
    stale = asked(fleet.api(search=searching(staleness_limit_s=1e-9), pool=down), fields="name")
    assert (len(stale.json()["data"]), stale.headers["Fleetlight-Complete"]) == (9, "false")
    assert routes(stale) == {"live", "index-while-down"}


def test_index_that_fails_is_replaced_by_the_cells(fleet: ComputeFleet) -> None:
    api = fleet.api()
    fleet.searcher.is_broken = True
    try:
        found = asked(api, fields="name")
    finally:
        fleet.searcher.is_broken = False
    assert (len(found.json()["data"]), routes(found)) == (9, {"live"})
