"""How a cell of Nova is read: its pages and its services, on each kind of server."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from fleetlight.cells.counting import count_rows
from fleetlight.cells.kinds.nova_db.adapter import NovaDbAdapter
from fleetlight.cells.kinds.nova_db.deployment import Deployment
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.reconcile.external_cell import ExternalComparison
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.indexer.writing.journaling import CellJournal
from fleetlight.query.counts import CountRequest, Counts
from fleetlight.query.filters import EVERYTHING, Eq, Filter, IsNotNull, IsNull, any_of
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Collation, Direction, SortKey, SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.nova.questions import identifier
from tests.support.fleets.nova_fleet import NovaFleet
from tests.support.oracles.nice_order import parts
from tests.support.servers.nova import NovaWorld

# The databases are made before the first test, which takes Nova a while.
pytestmark = [pytest.mark.own_servers, pytest.mark.timeout(600)]

SECOND = 1_000_000


@pytest.fixture
def cell(fleet: NovaFleet) -> Iterator[NovaDbAdapter]:
    with closing(NovaDbAdapter(fleet.cells["cell1"])) as adapter:
        yield adapter


def all_pages(cell: NovaDbAdapter, wanted: Filter, order: SortOrder, limit: int) -> list[InstanceRow]:
    rows: list[InstanceRow] = []
    position = None
    while page := cell.read_page(PageRequest(wanted, order, limit, position)):
        rows += page
        position = order.values(page[-1].record)
    return rows


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("key", ["created_at", "updated_at", "launched_at", "display_name", "memory_mb", "disk_usage"])
def test_pages_hold_each_row_once_in_order_those_without_a_value_too(
    cell: NovaDbAdapter, key: str, direction: Direction
) -> None:
    order = SortOrder.of(INSTANCE_FIELDS, [SortKey(key, direction)])
    for wanted in (EVERYTHING, Eq("deleted", False)):
        rows = all_pages(cell, wanted, order, 1000)
        in_order = sorted(rows, key=lambda row: order.comparable(order.values(row.record)))
        assert [row.uuid for row in rows] == [row.uuid for row in in_order]
        assert [row.uuid for row in all_pages(cell, wanted, order, 3)] == [row.uuid for row in rows]
    if key not in {"created_at", "memory_mb", "disk_usage"}:
        assert {row.record[key] is None for row in rows} == {True, False}


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("field", ["display_name", "flavor_id", "locked_reason"])
def test_order_that_a_database_may_not_have_is_made_here(cell: NovaDbAdapter, field: str, direction: Direction) -> None:
    """MySQL has no nice order, and no database of Nova's has these two fields in a column."""
    order = SortOrder.of(INSTANCE_FIELDS, [SortKey(field, direction, Collation.NICE)])
    rows = all_pages(cell, EVERYTHING, order, 1000)
    expected = sorted(rows, key=lambda row: row.uuid)
    expected.sort(
        key=lambda row: (row.record[field] is not None, parts(row.record[field] or "")),
        reverse=direction is Direction.DESC,
    )
    assert len(rows) == len(all_pages(cell, EVERYTHING, SortOrder.of(INSTANCE_FIELDS, ()), 1000))
    assert [row.uuid for row in rows] == [row.uuid for row in expected]
    assert [row.uuid for row in all_pages(cell, EVERYTHING, order, 3)] == [row.uuid for row in rows]


@pytest.mark.parametrize("name", [*INSTANCE_FIELDS])
def test_field_is_the_same_whether_it_is_asked_for_alone_or_not(cell: NovaDbAdapter, name: str) -> None:
    by_uuid = SortOrder.of(INSTANCE_FIELDS, ())
    whole = {row.uuid: row.record for row in cell.read_page(PageRequest(EVERYTHING, by_uuid, 1000))}
    # The second filter is tried in Python, on what is read for it.
    for wanted in (EVERYTHING, any_of(IsNotNull("flavor_id"), IsNull("locked_reason"))):
        rows = cell.read_page(PageRequest(wanted, by_uuid, 1000, fields=(name,)))
        assert len(rows) == len(whole)
        for row in rows:
            assert {"uuid", name} <= row.record.keys() <= {"uuid", name, "flavor_id", "locked_reason"}
            assert row.record == {field: whole[row.uuid][field] for field in row.record}


def test_sizes_in_columns_are_those_of_the_flavor(cell: NovaDbAdapter) -> None:
    by_uuid = SortOrder.of(INSTANCE_FIELDS, ())
    records = [row.record for row in cell.read_page(PageRequest(EVERYTHING, by_uuid, 1000))]
    for record in records:
        if record["flavor"]:
            assert (record["memory_mb"], record["vcpus"]) == (record["flavor"]["memory_mb"], record["flavor"]["vcpus"])


def test_rows_are_counted_page_by_page(cell: NovaDbAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlight.cells.counting._PAGE_ROWS", 3)
    by_uuid = SortOrder.of(INSTANCE_FIELDS, ())
    records = [row.record for row in cell.read_page(PageRequest(EVERYTHING, by_uuid, 1000))]
    by = Counter((record["flavor_id"], tag) for record in records for tag in record["tags"] or [None])
    assert count_rows(cell, CountRequest(EVERYTHING, INSTANCE_FIELDS, ("flavor_id", "tags"))) == Counts(by)


def test_capital_letters_find_a_server_where_they_do_in_nova(nova_deployment: NovaWorld, fleet: NovaFleet) -> None:
    """MySQL and MariaDB compare without regard to case."""
    uuid = identifier("web-1")
    finds = nova_deployment.server not in {"sqlite", "postgresql"}
    with closing(Deployment(nova_deployment.urls["api"])) as deployment:
        mapping = deployment.mapping_of(uuid.upper())
    assert (None if mapping is None else mapping.instance_uuid) == (uuid if finds else None)
    shown = fleet.api().get(f"/v2.1/servers/{uuid.upper()}")
    assert shown.status_code == (200 if finds else 404)


def test_service_says_what_its_host_is_like(fleet: NovaFleet, cell: NovaDbAdapter) -> None:
    assert cell.host_statuses() == {"compute1": "MAINTENANCE", "silent": "UNKNOWN"}
    with closing(NovaDbAdapter(fleet.cells["cell2"])) as other:
        assert other.host_statuses() == {"compute2": "DOWN"}


def test_host_is_up_while_its_service_is_heard_of(fleet: NovaFleet) -> None:
    heard_of_at = 1_793_534_400 * SECOND  # 2026-11-01, 12:00
    for late_s, status in ((0, "UP"), (60, "UP"), (-60, "UP"), (61, "UNKNOWN")):
        with closing(NovaDbAdapter(fleet.cells["cell1"], clock=lambda: heard_of_at + late_s * SECOND)) as cell:  # noqa: B023
            assert cell.host_statuses()["silent"] == status


def test_index_that_was_filled_from_each_cell_agrees_with_it_and_is_made_to_agree_again(fleet: NovaFleet) -> None:
    fleet.fill_index()
    with closing(open_writer(fleet.index)) as writer:

        def differences(cell: Cell, *, repair: bool = False) -> list[str]:
            journal = CellJournal(cell.uuid, fleet.fleet.journals, writer)
            with closing(open_adapter(cell)) as adapter:
                comparison = ExternalComparison(
                    adapter,
                    writer,
                    batch_size=20,
                    owners=fleet.fleet,
                    journal=journal,
                    confirm_timeout_s=None if repair else 0,
                )
                found = verify(comparison, repair=repair).differences
            return [difference.uuid for difference in found]

        assert [differences(cell) for cell in fleet.cells.values()] == [[]] * len(fleet.cells)
        cell = fleet.cells["cell1"]
        with closing(open_adapter(cell)) as adapter:
            row = adapter.read_page(PageRequest(Eq("deleted", False), SortOrder.of(INSTANCE_FIELDS, ()), 1))[0]
        writer.remove({row.uuid: 2**62})
        assert differences(cell, repair=True) == [row.uuid]
        assert differences(cell) == []
