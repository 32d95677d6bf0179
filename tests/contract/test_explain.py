"""`GET /fleetlight/explain` tells how a list came about, to administrators."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.contract.compute_fleet import MEMBER, Api, BrokenCells, ComputeFleet, compute_fleet, searching

STRONG = {"Fleetlight-Consistency": "strong"}
LIST = "GET /v2.1/servers?name=web&limit=4"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path) as fleet:
        fleet.fill(6)
        yield fleet


def explained(api: Api, request: str, *headers: dict[str, str]) -> Any:
    response = api.get(f"/fleetlight/explain?request={quote(request)}", *headers)
    assert response.status_code == 200, response.text
    return response.json()


def reasons(explanation: Any) -> dict[str, str]:
    return {cell["cell"]: f"{cell['route']}: {cell['why']}" for cell in explanation["cells"]}


def test_fresh_stale_and_unknown_cells_have_their_reasons_and_queries(fleet_of_any_store: ComputeFleet) -> None:
    fleet = fleet_of_any_store
    fleet.fill(6)
    fleet.index("east", age_s=60)
    fleet.index("south", is_complete=False)
    found = explained(fleet.api(search=searching(staleness_limit_s=30)), LIST)
    assert (found["rows"], found["complete"], found["remarks"]) == (4, True, [])
    assert (found["matching"], [cell["matching"] for cell in found["cells"]]) == (6, [2, 2, 2])
    why = reasons(found)
    assert re.match(r"live: the index is stale: \d+\.\d s behind", why["east"])
    assert why["east"].endswith(" s behind, and 30 s are allowed")
    assert why["south"] == "live: the index does not have all rows of the cell"
    assert why["north"].startswith("index: the index is fresh: ")
    [attempt] = found["attempts"]
    sources = {source["source"]: source for source in attempt["sources"]}
    assert set(sources) == {"index", "cell east", "cell south"}
    for name, source in sources.items():
        assert source["rows"] == 2
        assert source["batches"] >= 1
        assert "display_name" in json.dumps(source["query"]), name
    of_index = json.dumps(sources["index"]["query"])
    assert fleet.cells["north"].uuid in of_index
    assert fleet.cells["east"].uuid not in of_index
    assert ("sql" if fleet.index_settings.backend == "sqlite" else "dsl") in sources["index"]["query"]


def test_consistency_of_the_request_is_a_reason(fleet: ComputeFleet) -> None:
    api = fleet.api()
    assert set(reasons(explained(api, LIST, STRONG)).values()) == {"live: consistency strong: cells only"}
    as_it_is = reasons(explained(api, LIST, {"Fleetlight-Consistency": "any"}))
    assert as_it_is["north"].startswith("index: consistency any: the index as it is")


def test_horizon_token_and_cells_that_are_down_are_reasons(fleet: ComputeFleet) -> None:
    fleet.index(age_s=60)
    broken = fleet.api(search=searching(staleness_limit_s=30), pool=BrokenCells(fleet, failing_after={"east": 0}))
    down = reasons(explained(broken, LIST))["east"]
    assert down.startswith("index-while-down: it is down: cell")
    fleet.index()
    uuid = fleet.create("north")
    token = {"Fleetlight-Consistency": f"at-least {uuid}:1"}
    assert (
        reasons(explained(fleet.api(), LIST, token))["north"] == "live: the index lacks a change that the list includes"
    )


def test_filter_that_the_index_cannot_express_is_a_remark(fleet: ComputeFleet) -> None:
    found = explained(fleet.api(), "GET /v2.1/servers/detail?ip=10.0")
    assert len(found["remarks"]) == 1
    assert found["remarks"][0].startswith("the index cannot express ")
    assert {cell["route"] for cell in found["cells"]} == {"live"}
    assert [attempt["failure"] is None for attempt in found["attempts"]] == [False, True]


def test_lists_without_an_index_say_so(fleet: ComputeFleet) -> None:
    why = reasons(explained(fleet.api(search=searching(enabled=False)), LIST))
    assert set(why.values()) == {"live: lists do not use the index (search.enabled)"}


def test_nobody_but_administrators_gets_an_explanation(fleet: ComputeFleet) -> None:
    response = fleet.api().get(f"/fleetlight/explain?request={quote(LIST)}", MEMBER)
    assert response.status_code == 403


@pytest.mark.parametrize(
    "request_line", ["", "GET", "POST /v2.1/servers", "GET /v2.1/flavors", "GET /v2.1/servers?limit=x", "GET //[::1"]
)
def test_what_is_no_list_is_refused(fleet: ComputeFleet, request_line: str) -> None:
    response = fleet.api().get(f"/fleetlight/explain?request={quote(request_line)}")
    assert response.status_code == 400, response.text
