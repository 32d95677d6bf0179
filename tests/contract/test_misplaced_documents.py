"""A copy that another program has put under another id is found by that id, and removed or replaced."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fleetlight.cells.model import ItemRow
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION, CellProgress, IndexWriter
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.reconcile.announced import reconcile_announced
from fleetlight.indexer.reconcile.differences import DifferenceKind, Verification
from fleetlight.indexer.reconcile.external_cell import ExternalComparison, compare_cell
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.other_items import verify_other_items
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.indexer.transform.documents import to_document
from fleetlight.indexer.writing.announced import to_announced
from tests.support.fleets.documents import make_record, make_uuid
from tests.support.memory.memory_cell import CELL_UUID, MemoryCell
from tests.support.memory.memory_fleet import MemoryAnnounced
from tests.support.memory.stage import kinds
from tests.support.played.nova_cell import MemoryNovaCell
from tests.support.servers.index_server import index_client

pytestmark = pytest.mark.no_rerun

Copy = Callable[[str, str, str], None]
"""Puts what the index has of one instance, or item of a type (`instances` or `items`), under another id."""

NODE = "node"
ELSEWHERE = "ffffffff-0000-4000-8000-00000000000f"


@pytest.fixture
def copy(settings: IndexSettings) -> Copy:
    return _in_sqlite(settings.path) if settings.backend == "sqlite" else _in_elasticsearch(settings)


def _in_sqlite(path: Path) -> Copy:
    def copy(what: str, original: str, target: str) -> None:
        table = {"instances": "documents"}.get(what, what)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"CREATE TEMP TABLE copied AS SELECT * FROM {table} WHERE uuid = ?", (original,))  # noqa: S608
            connection.execute("UPDATE copied SET uuid = ?", (target,))
            assert connection.execute(f"INSERT OR REPLACE INTO {table} SELECT * FROM copied").rowcount == 1  # noqa: S608

    return copy


def _in_elasticsearch(settings: IndexSettings) -> Copy:
    def copy(what: str, original: str, target: str) -> None:
        index = f"{settings.prefix}-{what}"
        if what == "items":
            original, target = (f"{NODE}:{CELL_UUID}:{each}" if "-" in each else each for each in (original, target))
        with index_client(settings.urls[0], request_timeout=30) as client:
            source = client.get(index=index, id=original).body["_source"]
            client.index(index=index, id=target, document=source, refresh=True)

    return copy


def stocked(writer: IndexWriter, cell: MemoryCell) -> list[str]:
    """Fill cell and index with three instances and as many nodes; returns the uuids of the instances."""
    for number in range(3):
        cell.create(display_name=f"web{number}", node="n1")
        record = {"uuid": make_uuid(number), "deleted": False, "deleted_at": None, "name": f"host{number}"}
        cell.items.setdefault(NODE, {})[make_uuid(number)] = ItemRow(make_uuid(number), 1, record)
    writer.write([to_document(CELL_UUID, row.revision, row.record) for row in cell.rows.values()])
    writer.make_searchable()
    writer.save_progress([CellProgress(CELL_UUID, cell.last_sequence, 0, is_complete=True)])
    verify_other_items(cell, writer, NODE, 0, repair=True)
    return sorted(cell.rows)


@pytest.mark.parametrize("at_once", [None, 2], ids=["by digests", "by rows"])
@pytest.mark.parametrize("copies", [1, 20])
def test_copies_of_a_document_are_named_by_their_ids_and_removed(
    writer: IndexWriter, copy: Copy, at_once: int | None, copies: int
) -> None:
    cell = MemoryCell()
    uuids = stocked(writer, cell)
    ids = [f"{ELSEWHERE[:-2]}{number:02}" for number in range(copies)]
    for each in ids:
        copy("instances", uuids[1], each)

    def compared(*, repair: bool) -> Verification:
        comparison = NativeComparison(cell, writer, catch_up_timeout_s=0, contents_at_once=at_once)
        return verify(comparison, repair=repair)

    assert kinds(compared(repair=False)) == dict.fromkeys(ids, DifferenceKind.ONLY_IN_INDEX)
    assert compared(repair=True).remaining == ()
    assert compared(repair=False).differences == ()
    assert writer.versions([*uuids, *ids]).keys() == set(uuids)


def test_copy_in_the_place_of_another_document_is_replaced(writer: IndexWriter, copy: Copy) -> None:
    cell = MemoryCell()
    uuids = stocked(writer, cell)
    copy("instances", uuids[1], uuids[2])

    def compared(*, repair: bool) -> Verification:
        return verify(NativeComparison(cell, writer, catch_up_timeout_s=0, contents_at_once=2), repair=repair)

    assert kinds(compared(repair=False)).keys() == {uuids[2]}
    assert compared(repair=True).remaining == ()
    assert compared(repair=False).differences == ()
    wanted = {uuid: row.record["display_name"] for uuid, row in cell.rows.items()}
    assert {uuid: each.record["display_name"] for uuid, each in writer.read(uuids).items()} == wanted


def test_copy_keeps_nobody_from_reading_other_documents(writer: IndexWriter, copy: Copy) -> None:
    """As whoever writes them does before."""
    uuids = stocked(writer, MemoryCell())
    copy("instances", uuids[1], ELSEWHERE)
    assert writer.read([*uuids, ELSEWHERE]).keys() >= set(uuids)


@pytest.mark.parametrize("place", [ELSEWHERE, make_uuid(2), "kJ8aXyZ"], ids=["free", "taken", "any id"])
def test_copy_of_an_item_is_removed_or_replaced(writer: IndexWriter, copy: Copy, place: str) -> None:
    cell = MemoryCell()
    stocked(writer, cell)
    copy("items", make_uuid(1), place)
    found = verify_other_items(cell, writer, NODE, 0, repair=False)
    [different] = found.differences
    assert place in different.uuid
    assert verify_other_items(cell, writer, NODE, 0, repair=True).remaining == ()
    assert verify_other_items(cell, writer, NODE, 0, repair=False).differences == ()
    rows = cell.items[NODE]
    assert {uuid: each.record for uuid, each in writer.items(NODE, CELL_UUID).items()} == {
        uuid: row.record for uuid, row in rows.items()
    }


def test_copy_beside_the_rows_of_another_kind_of_cell_is_removed(writer: IndexWriter, copy: Copy) -> None:
    cell = MemoryNovaCell()
    for number in (1, 2, 3):
        cell.create(number)
    compare_cell(cell, writer, batch_size=2, clock=lambda: cell.now)
    copy("instances", make_uuid(1), ELSEWHERE)

    def comparison() -> ExternalComparison:
        return ExternalComparison(cell, writer, batch_size=2)

    assert [each.uuid for each in comparison().differing_among([make_uuid(1), ELSEWHERE])] == [ELSEWHERE]
    assert compare_cell(cell, writer, batch_size=2, clock=lambda: cell.now).removed == 1
    assert verify(comparison(), repair=False).differences == ()
    assert not writer.versions([ELSEWHERE])


def test_copy_of_an_announced_instance_is_removed(writer: IndexWriter, copy: Copy) -> None:
    store = MemoryAnnounced()
    writer.write([to_document(CELL_UUID, OLDEST_TIME_VERSION + 1, make_record(1))])
    copy("instances", make_uuid(1), ELSEWHERE)
    for _ in range(2):
        reconcile_announced(CELL_UUID, writer, writer, store, lambda _: {}, horizon=0, on_step=writer.make_searchable)
    assert store.kept.keys() == {make_uuid(1)}
    assert writer.versions([make_uuid(1), ELSEWHERE]).keys() == {make_uuid(1)}


def test_copy_in_the_place_of_an_announced_instance_is_replaced(writer: IndexWriter, copy: Copy) -> None:
    store = MemoryAnnounced()
    for number in (1, 2):
        writer.write([to_document(CELL_UUID, OLDEST_TIME_VERSION + number, make_record(number))])
    writer.make_searchable()
    store.keep(CELL_UUID, [to_announced(each) for each in writer.read([make_uuid(1), make_uuid(2)]).values()])
    copy("instances", make_uuid(2), make_uuid(1))
    for _ in range(2):
        reconcile_announced(CELL_UUID, writer, writer, store, lambda _: {}, horizon=0, on_step=writer.make_searchable)
    wanted = {make_uuid(number): make_record(number)["display_name"] for number in (1, 2)}
    found = writer.read([make_uuid(1), make_uuid(2)])
    assert {uuid: each.record["display_name"] for uuid, each in found.items()} == wanted
    assert {uuid: each.record["display_name"] for uuid, each in store.kept.items()} == wanted
