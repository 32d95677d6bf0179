"""`GET /fleetlight/explain` of a query tells how its answer came about, of every type of items."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from fleetlight.api.settings import ApiSettings
from tests.contract.compute_fleet import MEMBER, Api, BrokenCells, ComputeFleet, compute_fleet
from tests.contract.test_query_items import queue_a_stop


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts()
        fleet.fill(
            6, flavor={"flavorid": "1", "name": "small", "memory_mb": 512, "vcpus": 1, "root_gb": 1, "ephemeral_gb": 0}
        )
        yield fleet


def explained(api: Api, **parameters: str) -> Any:
    query = urlencode({"fields": "name", "all_projects": "1"} | parameters)
    response = api.get(f"/fleetlight/explain?request={quote(f'GET /fleetlight/query?{query}')}")
    assert response.status_code == 200, response.text
    return response.json()


def reasons(explanation: Any) -> dict[str, str]:
    return {cell["cell"]: f"{cell['route']}: {cell['why']}" for cell in explanation["cells"]}


def test_parts_of_the_filter_say_who_is_asked_what(fleet: ComputeFleet) -> None:
    fleet.index("east", is_complete=False)
    text = 'cell != "south" and vm_state == "active" and be/minmem > 1024'
    found = explained(fleet.api(), filter=text)
    assert found["filter"]["cells"] == ["and", ["ne", "cell", "south"], ["is_not_null", "cell"]]
    assert found["filter"]["pushed"] == ["or", ["eq", "vm_state", "active"], ["is_null", "vm_state"]]
    assert found["filter"]["tried"] == ["or", ["gt", "be/minmem", 1024], ["is_null", "be/minmem"]]
    assert (found["rows"], found["rows_read"], found["matching"]) == (0, 4, None)
    why = reasons(found)
    assert why["south"] == "not-asked: a condition on `cell` is not true of it"
    assert why["east"] == "live: the index does not have all rows of the cell"
    assert why["north"].startswith("index: the index is fresh: ")
    [attempt] = found["attempts"]
    sources = {source["source"]: source for source in attempt["sources"]}
    assert set(sources) == {"index", "cell east"}
    for source in sources.values():
        assert "vm_state" in json.dumps(source["query"])
        assert source["duration_ms"] > 0


def test_what_stores_answer_alone_is_counted_too(fleet: ComputeFleet) -> None:
    found = explained(fleet.api(), filter='name =* "web*" and cell == "north"', limit="1")
    assert (found["rows"], found["matching"]) == (1, 2)
    assert found["filter"]["tried"] == ["and"]
    assert found["complete"] is True


def test_pages_that_were_read_for_one_answer_are_told_together(fleet: ComputeFleet) -> None:
    found = explained(fleet.api(settings=ApiSettings(max_limit=2)), filter="be/minmem > 1024")
    assert [attempt["pages"] for attempt in found["attempts"]] == [1, 4]  # the first one by name, and all by uuid
    assert (found["rows_read"], found["rows"]) == (8, 0)


def test_items_of_the_index_say_so(fleet: ComputeFleet) -> None:
    found = explained(fleet.api(), what="node", filter='cell == "east" and name =* "*host0"')
    assert (found["rows"], found["rows_read"], found["matching"]) == (1, 2, None)
    assert reasons(found)["east"] == "index: the index has all items of the cell, closely enough"
    [[source]] = [attempt["sources"] for attempt in found["attempts"]]
    assert (source["source"], source["query"]) == ("index, of cell east", None)


def test_items_tell_every_statement_and_what_was_kept(fleet: ComputeFleet) -> None:
    found = explained(fleet.api(), what="node", fields="name,pinst_cnt", filter='cell == "east" and name =* "*host0"')
    assert (found["rows"], found["rows_read"], found["matching"]) == (1, 2, None)
    assert found["filter"]["pushed"] == ["and"]
    assert "name" in json.dumps(found["filter"]["tried"])
    assert reasons(found) == {
        "east": "live: the index does not have the field 'pinst_cnt', so cells are asked",
        "north": "not-asked: a condition on `cell` is not true of it",
        "south": "not-asked: a condition on `cell` is not true of it",
    }
    [[source]] = [attempt["sources"] for attempt in found["attempts"]]
    assert source["source"] == "cell east"
    assert any("compute_nodes" in statement["sql"] for statement in source["query"]["statements"])


def test_number_of_a_job_is_what_its_cell_is_asked_for(fleet: ComputeFleet) -> None:
    queue_a_stop(fleet, "north")
    api = fleet.api()
    [[[_, number]]] = api.get("/fleetlight/query?what=job&fields=id").json()["data"]
    found = explained(api, what="job", fields="id", filter=f"id == {number}")
    assert (found["rows"], found["rows_read"]) == (1, 1)
    assert found["filter"]["pushed"] == ["in", "id", [number]]
    statements = {source["source"]: source["query"]["statements"] for source in found["attempts"][0]["sources"]}
    assert all(statement["values"] for statement in statements["cell north"])


def test_cell_that_is_down_is_told_with_the_reason(fleet: ComputeFleet) -> None:
    api = fleet.api(pool=BrokenCells(fleet, failing_after={"east": 0}))
    found = explained(api, what="group")
    assert found["complete"] is False
    assert reasons(found)["east"].startswith("skipped: it is down: ")


@pytest.mark.parametrize("query", ["what=nothing&fields=name", "fields=name&filter=x", "fields=name&limit=0", ""])
def test_query_that_would_be_refused_is_refused(fleet: ComputeFleet, query: str) -> None:
    refused = fleet.api().get(f"/fleetlight/explain?request={quote(f'GET /fleetlight/query?{query}')}")
    assert refused.status_code in {400, 404}, refused.text


def test_nobody_but_administrators_gets_an_explanation(fleet: ComputeFleet) -> None:
    request = quote("GET /fleetlight/query?fields=name")
    assert fleet.api().get(f"/fleetlight/explain?request={request}", MEMBER).status_code == 403
