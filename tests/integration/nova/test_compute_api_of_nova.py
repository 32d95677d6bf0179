"""A cell that is Nova's own compute API: what it lists, and what it leaves out while one of its cells is down."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell, CellAdapter
from fleetlight.query.filters import EVERYTHING, Eq
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Direction, SortKey, SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.nova.questions import DEMO, Asked, identifier
from tests.support.servers.nova import NovaWorld
from tests.support.servers.nova_api import nova_api

pytestmark = [
    pytest.mark.night,
    pytest.mark.nova,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("nova_deployment", ["sqlite"], indirect=True),
]

BY_UUID = SortOrder.of(INSTANCE_FIELDS, ())
NEWEST_FIRST = SortOrder.of(INSTANCE_FIELDS, [SortKey("created_at", Direction.DESC)])
OLDEST_FIRST = SortOrder.of(INSTANCE_FIELDS, [SortKey("created_at", Direction.ASC)])
BY_NAME = SortOrder.of(INSTANCE_FIELDS, [SortKey("display_name", Direction.ASC)])
ORDERS = (BY_UUID, NEWEST_FIRST, OLDEST_FIRST, BY_NAME)


@pytest.fixture(scope="module")
def cell1(nova_deployment: NovaWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of one cell of a Nova, of which `nova.conf` is in the same folder."""
    folder = tmp_path_factory.mktemp("nova")
    files = {name: Path(str(sa.make_url(nova_deployment.urls[name]).database)) for name in ("api", "cell1")}
    for name, file in files.items():
        shutil.copy(file, folder / f"{name}.db")
    configuration = (files["api"].parent / "nova.conf").read_text()
    (folder / "nova.conf").write_text(configuration.replace(str(files["api"]), str(folder / "api.db")))
    with closing(sqlite3.connect(folder / "api.db")) as api, api:
        copy = f"sqlite:///{folder / 'cell1.db'}"
        api.execute("UPDATE cell_mappings SET database_connection = ? WHERE name = 'cell1'", (copy,))
        # Of a server that its cell has too, the request has another time, and comes last here.
        api.execute("UPDATE build_requests SET created_at = '2026-11-20 12:00:00'")
        is_arrived = (identifier("arrived"),)
        api.execute("UPDATE build_requests SET created_at = '2026-11-20 12:00:01' WHERE instance_uuid = ?", is_arrived)
    return folder / "cell1.db"


@pytest.fixture(scope="module")
def adapter(cell1: Path, nova_environment: str) -> Iterator[CellAdapter]:
    with nova_api(cell1.parent, nova_environment) as address:
        cell = Cell("5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7c44", "nova", CellKind.NOVA_API, address, "")
        with closing(open_adapter(cell, statement_timeout_s=60)) as opened:
            yield opened


def listed(adapter: CellAdapter, order: SortOrder = BY_UUID) -> list[str]:
    return [row.uuid for row in adapter.read_page(PageRequest(EVERYTHING, order, 1000))]


def in_pages(adapter: CellAdapter, order: SortOrder, size: int) -> list[str]:
    found: list[str] = []
    request = PageRequest(EVERYTHING, order, size)
    while rows := adapter.read_page(request):
        found += [row.uuid for row in rows]
        request = replace(request, after=order.values(rows[-1].record))
    return found


def test_pages_have_every_server_of_nova_also_those_that_are_in_no_cell_yet(
    adapter: CellAdapter, nova_deployment: NovaWorld
) -> None:
    rows = adapter.read_page(PageRequest(EVERYTHING, BY_UUID, 1000))
    uuids = {row.uuid for row in rows}
    assert {identifier("waiting"), identifier("waiting-elsewhere")} <= uuids
    listed_by_nova = nova_deployment.answer(Asked("/servers?all_tenants=1"))[1]["servers"]
    assert {server["id"] for server in listed_by_nova} <= uuids
    for order in ORDERS:
        expected = [row.uuid for row in sorted(rows, key=lambda row: order.comparable(order.values(row.record)))]
        assert in_pages(adapter, order, 1000) == in_pages(adapter, order, 20) == expected
    for row in (row for row in rows if row.record["host"] is None):
        found = adapter.find(row.uuid)
        assert found is not None
        # Of a server that was never updated Nova shows the current time.
        assert {**found.record, "updated_at": None} == {**row.record, "updated_at": None}


@contextmanager
def down(cell: Path) -> Iterator[None]:
    """To Nova a cell is down when it cannot read it."""
    with closing(sqlite3.connect(cell)) as connection:
        connection.execute("ALTER TABLE instances RENAME TO away")
        try:
            yield
        finally:
            connection.execute("ALTER TABLE away RENAME TO instances")


def test_list_that_lacks_the_servers_of_a_cell_of_nova_is_no_answer(cell1: Path, adapter: CellAdapter) -> None:
    first_of_a_project = PageRequest(Eq("project_id", DEMO), BY_UUID, 1)
    whole = listed(adapter)
    with down(cell1):
        for order in ORDERS:
            with pytest.raises(CellUnreachableError, match="a cell of its own that is down"):
                listed(adapter, order)
        with pytest.raises(CellUnreachableError, match="a cell of its own that is down"):
            adapter.read_page(first_of_a_project)
    assert listed(adapter) == whole
    assert len(adapter.read_page(first_of_a_project)) == 1
