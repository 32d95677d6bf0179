"""Boundaries of the parts of a list: the pages that begin there, by every route, exact or from a sample."""

from random import Random
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest

from fleetlight.api.query.boundaries import SAMPLE, ListSampler, Sampled
from fleetlight.api.query.counting import QueryCounter
from fleetlight.api.query.item_query import ItemQuery, query_of
from fleetlight.api.settings import ApiSettings
from fleetlight.cells.counting import MAX_ROWS
from fleetlight.listing.answer import Consistency, ReadOptions
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from tests.contract.compute_fleet import CELLS, MEMBER, Api, BrokenCells, ComputeFleet, searching
from tests.contract.test_query import ROUTES, SMALL, api_by, ask, fill, filled, fleet

__all__ = ["filled", "fleet"]
ROOT = ReadOptions(Consistency.BOUNDED, (), 5.0)
ORDERS = ("", "-name", "-ctime", "vm_state,name", "-node,-ctime", "uuid", "cell", "-cell,vm_state")


def boundaries(api: Api, **parameters: str) -> Any:
    response = api.get(f"/fleetlight/query/boundaries?{urlencode({'all_projects': '1'} | parameters)}")
    assert response.status_code == 200, response.text
    assert response.headers["fleetlight-complete"] == "true"
    return response.json()


def check_pages(api: Api, found: Any, **asked: str) -> None:
    """From each marker on, the list goes on as it does from its beginning, after so many rows."""
    whole = ask(api, **asked)["data"]
    assert (found["total"], found["exact"], found["partial"]) == (len(whole), True, False)
    for boundary in found["boundaries"]:
        marker = {} if boundary["marker"] is None else {"marker": boundary["marker"]}
        page = ask(api, **asked, **marker)["data"]
        assert page == whole[boundary["before"] :]
        assert page[0][1] == boundary["value"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("route", ROUTES)
def test_list_goes_on_from_each_boundary(filled: ComputeFleet, route: str, order: str) -> None:
    api = api_by(filled, route)
    first = order.split(",", maxsplit=1)[0].removeprefix("-") or "name"
    ordered = {"order": order} if order else {}
    found = boundaries(api, parts="5", **ordered)
    assert [boundary["before"] for boundary in found["boundaries"]] == [0, 2, 4, 7, 9]
    check_pages(api, found, fields=f"name,{first}", **ordered)


def test_list_goes_on_from_boundaries_of_any_store(fleet_of_any_store: ComputeFleet) -> None:
    fill(fleet_of_any_store)
    for route in ROUTES:
        api = api_by(fleet_of_any_store, route)
        for order in ("name", "-ctime"):
            found = boundaries(api, parts="4", order=order, filter="be/memory < 4096")
            assert [boundary["before"] for boundary in found["boundaries"]] == [0, 2, 4, 6]
            fields = f"name,{order.removeprefix('-')}"
            check_pages(api, found, fields=fields, order=order, filter="be/memory < 4096")


def test_there_are_no_more_parts_than_rows(filled: ComputeFleet) -> None:
    found = boundaries(filled.api(), parts="100")
    assert [boundary["before"] for boundary in found["boundaries"]] == list(range(12))
    assert boundaries(filled.api(), filter='name == "no"') == {
        "total": 0,
        "exact": True,
        "partial": False,
        "boundaries": [],
    }


def test_nodes_and_jobs_have_boundaries_too(fleet: ComputeFleet) -> None:
    fleet.add_hosts(4)
    api = fleet.api(settings=ApiSettings(max_limit=5))
    found = boundaries(api, what="node", parts="3")
    assert [boundary["before"] for boundary in found["boundaries"]] == [0, 4, 8]
    check_pages(fleet.api(), found, what="node", fields="cell,name")
    assert boundaries(api, what="job")["total"] == 0


def _many(fleet: ComputeFleet, count: int) -> None:
    random = Random(1)
    for number in range(count):
        uuid = str(UUID(int=random.getrandbits(128), version=4))
        fleet.create(CELLS[number % 3], display_name=f"web{number}", uuid=uuid, **SMALL)
    fleet.index()


def _sampled(api: Api, question: ItemQuery, *, sample: int = SAMPLE, max_rows: int = MAX_ROWS) -> Sampled:
    engine, services = api.application.query_engine, api.services
    counter = QueryCounter(services.counter, engine, services.parts.cells, max_rows=max_rows)
    caller = api.run(services.parts.identity.authenticate({}))
    sampler = ListSampler(engine, counter, sample=sample, max_rows=max_rows)
    return api.run(sampler.sampled(question, caller, ROOT))


@pytest.mark.parametrize("order", ["name", "-name", "-ctime", "-cell"])
@pytest.mark.parametrize("route", ROUTES)
def test_boundaries_of_a_sample_are_about_right(fleet: ComputeFleet, route: str, order: str) -> None:
    _many(fleet, 120)
    fleet.index("east", is_complete=route != "mixed")
    api = fleet.api(search=searching(enabled=route != "cells"), settings=ApiSettings(max_limit=10))
    names = [order.removeprefix("-")]
    question = query_of(ITEM_TYPES["instance"], names, order=[order], all_projects=True)
    sampled = _sampled(api, question, sample=40)
    assert (len(sampled.rows), sampled.total, sampled.is_partial) == (40, 120, False)
    found = sampled.boundaries(4)
    assert [boundary["before"] for boundary in found] == [0, 30, 60, 90]
    whole = fleet.api(search=searching(enabled=False))
    for boundary in found[1:]:
        left = ask(whole, fields="name", order=order, marker=boundary["marker"])["data"]
        # Three deviations of a share of 40 rows.
        assert abs((120 - len(left)) - boundary["before"]) < 120 * 3 * 0.5 / 40**0.5


def test_what_one_request_may_not_read_makes_a_list_partial(fleet: ComputeFleet) -> None:
    _many(fleet, 30)
    api = fleet.api(settings=ApiSettings(max_limit=5))
    question = query_of(ITEM_TYPES["instance"], ["name"], "be/minmem == 7", all_projects=True)
    sampled = _sampled(api, question, max_rows=10)
    assert (sampled.rows, sampled.total, sampled.is_partial) == ([], 0, True)
    assert sampled.boundaries(3) == []


def test_boundaries_tell_of_cells_that_are_down(fleet: ComputeFleet) -> None:
    fill(fleet)
    api = fleet.api(search=searching(enabled=False), pool=BrokenCells(fleet, failing_after={"east": 0}))
    response = api.get("/fleetlight/query/boundaries?all_projects=1")
    assert response.headers["fleetlight-complete"] == "false"
    assert response.json()["total"] == 8


def test_members_see_boundaries_of_their_own(fleet: ComputeFleet) -> None:
    for project in ("demo", "demo", "other"):
        fleet.create("east", project_id=project)
    fleet.index()
    member = MEMBER | {"X-Project-Id": "demo"}
    assert fleet.api().get("/fleetlight/query/boundaries", member).json()["total"] == 2
    for query, status in (("all_projects=1", 403), ("order=host", 400), ("what=node", 404)):
        assert fleet.api().get(f"/fleetlight/query/boundaries?{query}", member).status_code == status


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("parts=101", "parts: 101; there may be 100"),
        ("parts=0", "parts: 0; it is at least 1"),
        ("parts=a", "parts: 'a'"),
        ("order=tags", "order: 'tags'"),
        ("fields=name", "fields"),
        ("marker=x", "marker"),
        ("filter=nam%20%3D%3D%201", "nam"),
        ("as_of=now", "as_of"),
    ],
)
def test_question_that_is_none_is_refused(filled: ComputeFleet, query: str, says: str) -> None:
    response = filled.api().get(f"/fleetlight/query/boundaries?all_projects=1&{query}")
    assert response.status_code == 400
    assert says in response.text
