"""Instances that only notifications announced are there whichever route a list takes, or it is not complete."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch
from urllib.parse import quote
from uuid import uuid4

import pytest

from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.fleet.announced_instances import AnnouncedInstances, AnnouncedPage
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.model import InstanceRow
from fleetlight.indexer.backends.base import Document
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.transform.documents import to_document
from fleetlight.indexer.writing.announced import to_announced
from fleetlight.query.filters import In
from fleetlight.query.page import PageRequest
from fleetlight.resources.clock import system_clock
from fleetlight.resources.instance import BLANK_INSTANCE
from tests.contract.compute_fleet import MEMBER, ComputeFleet, searching

ROUTES: Mapping[str, Mapping[str, Any]] = {
    "index": {},
    "mixed": {},
    "live": {"headers": {"Fleetlight-Consistency": "strong"}},
    "no index": {"search": searching(enabled=False)},
}
BESIDE = pytest.mark.parametrize("route", ROUTES)
NOT_CHANGED = "was only announced"
QUERY = "/fleetlight/query?fields=uuid&all_projects=1"
COUNTS = "/fleetlight/query/counts?by=pnode&all_projects=1"


class Announced:
    """A fleet with rows in all cells, and with servers of one cell that were only announced."""

    def __init__(self, fleet: ComputeFleet) -> None:
        self.fleet = fleet
        self.rows = fleet.fill(6)
        self.uuids = [self.announce("east", display_name=f"announced-{number}", node=f"h{number}") for number in (1, 2)]

    def announce(self, cell: str, uuid: str | None = None, **values: Any) -> str:
        """What the indexer does for an announcement: into the journal, then into the index."""
        now = system_clock()
        known = {"uuid": uuid or str(uuid4()), "project_id": "demo", "user_id": "ada", "created_at": now}
        document = to_document(self.fleet.cells[cell].uuid, now, {**BLANK_INSTANCE, **known, **values})
        self.fleet.fleet.journals.announced.keep(document.cell_uuid, [to_announced(document)])
        self._index(document)
        return document.id

    def get(self, url: str, route: str, *headers: Mapping[str, str]) -> Any:
        """A successful answer whose rows came by `route`."""
        made = {name: value for name, value in ROUTES[route].items() if name != "headers"}
        if route == "mixed":
            self.fleet.index("east", is_complete=False)
        response = self.fleet.api(**made).get(url, ROUTES[route].get("headers", {}), *headers)
        assert response.status_code == 200, response.text
        return response

    def _index(self, document: Document) -> None:
        with closing(open_writer(self.fleet.index_settings)) as writer:
            writer.write([document])
            writer.make_searchable()


@pytest.fixture
def announced(fleet_of_any_store: ComputeFleet) -> Announced:
    return Announced(fleet_of_any_store)


def ids(response: Any) -> list[str]:
    assert response.headers["Fleetlight-Complete"] == "true"
    return sorted(server["id"] for server in response.json()["servers"])


@BESIDE
def test_every_route_lists_filters_and_pages_announced_servers(announced: Announced, route: str) -> None:
    everything = sorted([*announced.rows, *announced.uuids])
    assert ids(announced.get("/v2.1/servers", route)) == everything
    assert ids(announced.get("/v2.1/servers?name=announced-1", route)) == announced.uuids[:1]
    assert ids(announced.get("/v2.1/servers?name=nothing", route)) == []
    assert ids(announced.get("/v2.1/servers", route, MEMBER, {"X-Project-Id": "other"})) == []
    shown: list[str] = []
    url = "/v2.1/servers?sort_key=display_name&sort_dir=asc&limit=3"
    while len(shown) < len(everything):
        page = ids(announced.get(url, route))
        assert page
        shown += page
        url = f"{url.partition('&marker')[0]}&marker={max(page, key=lambda uuid: name_of(announced, uuid))}"
    assert sorted(shown) == everything, "each server once"


def name_of(announced: Announced, uuid: str) -> str:
    if uuid in announced.uuids:
        return f"announced-{announced.uuids.index(uuid) + 1}"
    return f"web-{len(announced.rows) - 1 - announced.rows.index(uuid)}"


@BESIDE
def test_every_face_has_announced_servers(announced: Announced, route: str) -> None:
    assert count(announced, route) == {"h1": 1, "h2": 1, None: 6}
    queried = announced.get(QUERY, route)
    assert queried.headers["Fleetlight-Complete"] == "true"
    assert {row[0][1] for row in queried.json()["data"]} == {*announced.rows, *announced.uuids}
    listed = announced.get("/2/instances", route)
    assert listed.headers["Fleetlight-Complete"] == "true"
    assert {"announced-1", "announced-2"} <= {item["id"] for item in listed.json()}
    assert announced.get(f"/2/instances/{announced.uuids[0]}", route).json()["name"] == "announced-1"


def count(announced: Announced, route: str) -> Mapping[str | None, int]:
    response = announced.get(COUNTS, route)
    assert response.headers["Fleetlight-Complete"] == "true"
    return {group["by"]["pnode"]: group["count"] for group in response.json()["groups"]}


def test_details_of_announced_servers_are_the_same_by_every_route(announced: Announced) -> None:
    shown = [announced.get("/v2.1/servers/detail?sort_key=uuid", route).json()["servers"] for route in ROUTES]
    assert all(each == shown[0] for each in shown)


@BESIDE
def test_one_announced_server_is_shown_and_cannot_be_changed(announced: Announced, route: str) -> None:
    [uuid, _] = announced.uuids
    shown = announced.get(f"/v2.1/servers/{uuid}", route)
    assert shown.json()["server"]["name"] == "announced-1"
    assert "Fleetlight-Token" not in shown.headers, "its cell numbers nothing of it"
    api = announced.fleet.api()
    assert api.get(f"/v2.1/servers/{uuid}", MEMBER, {"X-Project-Id": "other"}).status_code == 404
    refused = api.request("DELETE", f"/v2.1/servers/{uuid}")
    assert (refused.status_code, NOT_CHANGED in refused.text) == (501, True)


@pytest.mark.parametrize("route", ["live", "no index"])
def test_row_of_the_cell_or_a_mapping_to_another_one_decides(announced: Announced, route: str) -> None:
    fleet = announced.fleet
    changed, moved = (fleet.create(cell, display_name="row") for cell in ("east", "south"))
    for uuid in (changed, moved):
        fleet.fleet.journals.announced.keep(
            fleet.cells["east"].uuid,
            [to_announced(document_of(fleet, "east", uuid, display_name="announced", project_id="demo"))],
        )
    assert ids(announced.get("/v2.1/servers?name=^row$", route)) == sorted([changed, moved])
    assert ids(announced.get("/v2.1/servers?name=^announced$", route)) == []
    assert len(ids(announced.get("/v2.1/servers", route))) == 10
    assert sum(count(announced, route).values()) == 10


def document_of(fleet: ComputeFleet, cell: str, uuid: str, **values: Any) -> Document:
    return to_document(fleet.cells[cell].uuid, system_clock(), {**BLANK_INSTANCE, "uuid": uuid, **values})


def test_deleted_announced_server_is_listed_as_one(announced: Announced) -> None:
    now = system_clock()
    gone = announced.announce("east", deleted=True, deleted_at=now, updated_at=now, vm_state="deleted")
    for route in ROUTES:
        assert gone not in ids(announced.get("/v2.1/servers", route))
        assert ids(announced.get("/v2.1/servers?deleted=true", route)) == [gone]


def test_answer_is_not_complete_while_the_journal_cannot_be_read(
    announced: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> AnnouncedPage:
        raise FleetUnreachableError("somebody stopped it")

    monkeypatch.setattr(AnnouncedInstances, "read_page", fail)
    away = announced.fleet.api()
    strong = {"Fleetlight-Consistency": "strong"}
    for url in ("/v2.1/servers", COUNTS, QUERY, "/2/instances"):
        assert away.get(url).headers["Fleetlight-Complete"] == "true", "the index has them"
        assert away.get(url, strong).headers["Fleetlight-Complete"] == "false"
    shown = away.get("/v2.1/servers", strong).json()["servers"]
    assert {server["id"] for server in shown} == set(announced.rows), "what is known is there"
    explained = away.get("/fleetlight/explain?request=GET+/v2.1/servers", strong).json()
    assert "somebody stopped it" in str(explained["cells"])


def test_answer_is_not_complete_where_more_was_announced_than_is_kept(announced: Announced) -> None:
    with patch("fleetlight.cells.fleet.announced_instances.MOST_KEPT", 2):
        response = announced.get("/v2.1/servers", "live")
    assert response.headers["Fleetlight-Complete"] == "false"
    assert len(response.json()["servers"]) == 8
    with patch("fleetlight.cells.fleet.announced_instances.MOST_KEPT", 3):
        assert len(ids(announced.get("/v2.1/servers", "live"))) == 8


def test_past_of_announced_servers_is_not_known(announced: Announced) -> None:
    now = quote(datetime.now(UTC).isoformat())
    for cells, is_complete in (("east", "false"), ("north", "true")):
        past = announced.get(f"{QUERY}&as_of={now}&filter=cell+%3D%3D+%22{cells}%22", "live")
        assert past.headers["Fleetlight-Complete"] == is_complete


def test_cell_that_cannot_say_which_of_them_have_rows_is_not_complete(announced: Announced) -> None:
    class Failing(NativeAdapter):
        def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
            if isinstance(request.filter, In):
                raise CellUnreachableError(self.cell.name, "it went away")
            return super().read_page(request)

    fleet = announced.fleet
    pool = CellPool(fleet.fleet.cells, Failing)
    response = fleet.api(pool=pool).get("/v2.1/servers", {"Fleetlight-Consistency": "strong"})
    assert response.headers["Fleetlight-Complete"] == "false"
    assert {server["id"] for server in response.json()["servers"]} == set(announced.rows)
    fleet.close_pool(pool)
