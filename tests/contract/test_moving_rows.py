"""An instance that is renamed while an answer is read in several pages is in the answer, once."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

from fleetlight.api.settings import ApiSettings
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.model import Cell
from fleetlight.listing.list_instances import InstanceLister
from tests.contract.compute_fleet import Api, ComputeFleet, searching
from tests.contract.conftest import own_fleet

fleet = own_fleet
QUERY = {"all_projects": 1, "fields": "name", "filter": "serial_no >= 2"}


@pytest.fixture(params=["index", "cells"])
def api(fleet: ComputeFleet, request: pytest.FixtureRequest) -> Api:
    """One that reads four instances at a time."""
    return fleet.api(search=searching(enabled=request.param == "index"), settings=ApiSettings(max_limit=4))


@pytest.fixture
def renamed(fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Of nine instances the last one becomes the first one, once the first page has been read."""
    uuids = [fleet.create("north", display_name=name) for name in "bcdefghyz"]
    for uuid in uuids[-2:]:
        fleet.operations("north").update(uuid, {"display_description": "changed"})
    fleet.index()

    def begin() -> None:
        read, names = InstanceLister.list_page, ["a"]

        async def list_page(*arguments: Any, **options: Any) -> Any:
            page = await read(*arguments, **options)
            with suppress(IndexError):
                fleet.operations("north").update(uuids[-1], {"display_name": names.pop()})
                fleet.index()
            return page

        monkeypatch.setattr(InstanceLister, "list_page", list_page)

    return begin


@pytest.mark.parametrize("limit", [9, 1])
def test_query_by_what_no_store_knows_has_it(api: Api, renamed: Callable[[], None], limit: int) -> None:
    renamed()
    found: list[str] = []
    marker: str | None = ""
    while marker is not None:
        asked = {**QUERY, "limit": limit} | ({"marker": marker} if marker else {})
        answer = api.get(f"/fleetlight/query?{urlencode(asked)}")
        assert answer.headers["Fleetlight-Complete"] == "true"
        found += [row[0][1] for row in answer.json()["data"]]
        marker = answer.json()["marker"]
    assert found == ["a", "y"]


def test_query_of_more_rows_than_it_may_read_is_not_complete_unless_they_keep_their_places(
    api: Api, renamed: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.api.query.engine.MAX_ROWS_TRIED", 5)
    renamed()
    answers = [api.get(f"/fleetlight/query?{urlencode({**QUERY, 'order': order})}") for order in ("name", "uuid")]
    assert [answer.headers["Fleetlight-Complete"] for answer in answers] == ["false", "true"]


def test_whole_list_has_it_last(api: Api, renamed: Callable[[], None]) -> None:
    renamed()
    answer = api.get("/2/instances?bulk=1")
    assert [instance["name"] for instance in answer.json()] == [*"bcdefghya"]
    assert answer.headers["Fleetlight-Complete"] == "true"


def test_bulk_change_has_it_by_either_name(api: Api, renamed: Callable[[], None]) -> None:
    renamed()
    previewed = api.request("POST", "/fleetlight/bulk", json={"action": "stop", "filter": "", "all_projects": True})
    names = [item["name"] for item in previewed.json()["items"]]
    assert sorted(names) == names
    assert {name.replace("z", "a") for name in names} == {*"abcdefghy"}
    assert previewed.json()["complete"] is True


@pytest.mark.parametrize(("order", "names"), [("", "bcdefghya"), ("cell,-name", "yhgfedcba")])
def test_export_has_it_once(api: Api, renamed: Callable[[], None], order: str, names: str) -> None:
    renamed()
    asked = {"all_projects": 1, "fields": "name", "format": "csv"} | ({"order": order} if order else {})
    answer = api.get(f"/fleetlight/query/export?{urlencode(asked)}")
    assert answer.text.split() == ["name", *names]
    assert answer.headers["Fleetlight-Complete"] == "true"


@pytest.mark.parametrize("order", ["name", "cell", "cell,uuid", "-cell,-name"])
def test_server_of_nova_is_in_its_cell_where_it_waits_no_more(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """`south` has those that wait for a place in `north`, and is read live; the index of `north` lacks the last one."""
    read = CellPool.cells

    async def cells(pool: CellPool) -> tuple[Cell, ...]:
        return tuple(replace(each, api_database_url="" if each.name == "east" else "nova") for each in await read(pool))

    monkeypatch.setattr(CellPool, "cells", cells)
    monkeypatch.setattr(Cell, "is_before_cells", property(lambda cell: cell.name == "south"))
    fleet.create("north", display_name="a")
    fleet.index()
    fleet.index("south", is_complete=False)
    fleet.create("north", display_name="b")
    api = fleet.api(search=searching(staleness_limit_s=600))
    answer = api.get(f"/fleetlight/query?{urlencode({'all_projects': 1, 'fields': 'name', 'order': order})}")
    assert answer.headers["Fleetlight-Complete"] == "true"
    assert {row[0][1] for row in answer.json()["data"]} == {"a", "b"}
