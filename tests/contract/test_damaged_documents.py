"""A document of the index that somebody else has written takes the index, and lists, from nobody.

Whoever asks for a page with it is answered by the cells; all other pages still come from the index.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from structlog.testing import capture_logs

from fleetlight.indexer.backends.elasticsearch.names import Names
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.backends.sqlite.searcher import select_page, select_rows
from fleetlight.indexer.backends.sqlite.writer import SqliteWriter
from fleetlight.indexer.errors import IndexDocumentError
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import PIECE_NAMES
from fleetlight.views.projection import FieldValues
from tests.contract.compute_fleet import MEMBER, ComputeFleet
from tests.support.fleets.documents import make_document, make_uuid
from tests.support.fleets.nova_fleet import nova_fleet
from tests.support.fleets.nova_tables import small_nova

pytestmark = pytest.mark.no_rerun

# What there is in the place of the views of a document.
DAMAGE: dict[str, Any] = {
    "other members": {name: {"a": 1} for name in PIECE_NAMES},
    "no objects": dict.fromkeys(PIECE_NAMES, 7),
    "nothing": {},
}


def damage_sqlite(settings: IndexSettings, uuid: str, view: dict[str, Any]) -> None:
    columns = ", ".join(f"view_{name} = ?" for name in PIECE_NAMES)
    pieces = [json.dumps(view[name]).encode() if name in view else b"" for name in PIECE_NAMES]
    # As one of our writers, since a disk that damages a row breaks no seal.
    with closing(SqliteWriter(settings.path)) as writer, writer.transaction() as connection:
        connection.execute(f"UPDATE documents SET tags = '{{', {columns} WHERE uuid = ?", (*pieces, uuid))  # noqa: S608


def damage(fleet: ComputeFleet, uuid: str, view: dict[str, Any]) -> None:
    settings = fleet.index_settings
    if settings.backend == "sqlite":
        damage_sqlite(settings, uuid, view)
        return
    names, [url] = Names.of(settings.prefix), settings.urls
    with urlopen(f"{url}/{names.read}/_source/{uuid}") as answer:  # noqa: S310
        source = json.load(answer) | {"view": view}
    address = f"{url}/{names.write}/_doc/{uuid}?refresh=true"
    content = {"Content-Type": "application/json"}
    urlopen(Request(address, json.dumps(source).encode(), content, method="PUT")).close()  # noqa: S310


@pytest.mark.parametrize("view", DAMAGE.values(), ids=list(DAMAGE))
@pytest.mark.parametrize("path", ["servers", "servers/detail"])
def test_page_with_a_damaged_document_comes_from_the_cells_and_others_from_the_index(
    fleet_of_any_store: ComputeFleet, view: dict[str, Any], path: str
) -> None:
    fleet = fleet_of_any_store
    uuids = fleet.fill(6, project_id="demo")
    damage(fleet, uuids[3], view)
    api = fleet.api()
    with capture_logs() as logs:
        for _ in range(2):
            pages = list(api.walk(f"/v2.1/{path}?limit=2", MEMBER))
            assert [server["id"] for page in pages for server in page.json()["servers"]] == uuids
            assert [page.headers["Fleetlight-Complete"] for page in pages if page.json()["servers"]] == ["true"] * 3
            routes = [page.headers["Fleetlight-Route"].partition(";")[0] for page in pages if page.json()["servers"]]
            assert [route.startswith("index") for route in routes] == [True, False, True]
    damaged = [event["document"] for event in logs if event["event"] == "index_document_damaged"]
    assert set(damaged) == {uuids[3]}
    assert len(damaged) <= 2  # once, or once for each way to come upon it
    assert "index_unavailable" not in [event["event"] for event in logs]
    # Its own place, as that of a page that starts behind it, is told by its cell.
    assert (
        api.ids(f"/v2.1/{path}?marker={uuids[3]}&sort_key=uuid", MEMBER)
        == sorted(uuids)[::-1][sorted(uuids)[::-1].index(uuids[3]) + 1 :]
    )


def test_values_of_a_damaged_document_are_refused_by_its_name(tmp_path: Path) -> None:
    settings = IndexSettings(path=tmp_path / "index.db")
    with closing(SqliteWriter(settings.path)) as writer:
        writer.prepare()
        writer.write([make_document(number) for number in (1, 2, 3)])
    damage_sqlite(settings, make_uuid(2), {})
    request, tags = PageRequest(EVERYTHING, INSTANCES_BY_UUID, 10), FieldValues(INSTANCE_FIELDS, ["tags"])
    with closing(sqlite3.connect(settings.path)) as connection:
        for select in (select_rows, select_page):
            with pytest.raises(IndexDocumentError) as raised:
                select(connection, request, {"c0"}, tags)
            assert raised.value.document_id == make_uuid(2)


def test_damaged_document_is_left_out_of_those_that_an_indexer_reads(fleet_of_any_store: ComputeFleet) -> None:
    fleet = fleet_of_any_store
    uuids = fleet.fill(4)
    for uuid in uuids[1:3]:
        damage(fleet, uuid, {})
    with closing(open_writer(fleet.index_settings)) as writer, capture_logs() as logs:
        for _ in range(2):
            assert writer.read(uuids).keys() == {uuids[0], uuids[3]}
    assert {event["document"] for event in logs if event["event"] == "index_document_damaged"} == set(uuids[1:3])


def test_comparison_writes_a_damaged_document_of_a_cell_of_nova_anew(tmp_path: Path) -> None:
    nova = small_nova(tmp_path)
    uuids = [nova.add("cell1", number) for number in (1, 2)]
    with nova_fleet(tmp_path, nova.urls) as fleet:
        fleet.fill_index()
        damage_sqlite(fleet.index, uuids[0], {})
        fleet.fill_index()
        with closing(open_writer(fleet.index)) as writer:
            assert writer.read(uuids).keys() == set(uuids)
