"""What is altered in an index beside this program is found and repaired at once, in each backend."""

import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from fleetlight.indexer.backends.base import REPAIRS, CellProgress, IndexWriter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.reconcile.differences import DifferenceKind
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.indexer.transform.documents import to_document
from fleetlight.views.compute.view import PIECE_NAMES
from tests.support.memory.memory_cell import CELL_UUID, MemoryCell
from tests.support.servers.index_server import index_client

Alter = Callable[[str, str], None]
"""Does something (its name) to the document of an instance."""

ALTERATIONS = {
    "a field": DifferenceKind.CHANGED,
    "the view": DifferenceKind.CHANGED,
    "the key of an order": DifferenceKind.CHANGED,
    "the version": DifferenceKind.NEWER,
    "the cell": DifferenceKind.OTHER_CELL,
    "everything": DifferenceKind.MISSING,
}


@pytest.fixture
def alter(settings: IndexSettings) -> Alter:
    return _in_sqlite(settings) if settings.backend == "sqlite" else _in_elasticsearch(settings)


def _in_sqlite(settings: IndexSettings) -> Alter:
    changes = {
        "a field": "UPDATE documents SET display_name = 'altered', display_name_nice = 'altered' WHERE uuid = ?",
        "the view": "UPDATE documents SET view_public = x'7b7d' WHERE uuid = ?",
        "the key of an order": "UPDATE documents SET display_name_nice = 'altered' WHERE uuid = ?",
        "the version": "UPDATE documents SET version = version + 1 WHERE uuid = ?",
        "the cell": "UPDATE documents SET cell_uuid = 'elsewhere' WHERE uuid = ?",
        "everything": "DELETE FROM documents WHERE uuid = ?",
    }

    def alter(what: str, uuid: str) -> None:
        with closing(sqlite3.connect(settings.path)) as connection, connection:
            assert connection.execute(changes[what], (uuid,)).rowcount == 1

    return alter


def _in_elasticsearch(settings: IndexSettings) -> Alter:
    scripts = {
        "a field": "ctx._source.display_name = 'altered'; ctx._source.display_name_nice = 'altered'",
        "the view": f"ctx._source.view['{PIECE_NAMES[0]}'] = 'altered'",
        "the key of an order": "ctx._source.display_name_nice = 'altered'",
        "the version": "ctx._source.version += 1",
        "the cell": "ctx._source.cell_uuid = 'elsewhere'",
    }

    def alter(what: str, uuid: str) -> None:
        index = f"{settings.prefix}-instances-write"
        with index_client(settings.urls[0], request_timeout=30) as client:
            found = client.get(index=index, id=uuid).body
            if what == "everything":
                client.delete(index=index, id=uuid, refresh=True)
                return
            # An update counts the version up by itself, and the change that comes next would be taken for an old one.
            client.update(index=index, id=uuid, script={"source": scripts[what]}, refresh=True)
            if what != "the version":
                source = client.get(index=index, id=uuid).body["_source"]
                same = {"version": found["_version"], "version_type": "external_gte"}
                client.delete(index=index, id=uuid)
                client.indices.put_settings(index=index, settings={"index.gc_deletes": "0s"})
                with closing(open_writer(settings)) as writer:
                    writer._have_forgotten([uuid])  # type: ignore[attr-defined]
                client.index(index=index, id=uuid, document=source, refresh=True, **same)

    return alter


@pytest.mark.parametrize("what", ALTERATIONS)
def test_altered_document_is_found_and_repaired_in_one_pass(writer: IndexWriter, alter: Alter, what: str) -> None:
    """The revision may be the right one, and the digest too; while it is repaired lists do without the index."""
    cell = MemoryCell()
    for number in range(3):
        cell.create(display_name=f"web{number}", node="n1")
    uuids = sorted(cell.rows)
    writer.write([to_document(CELL_UUID, row.revision, row.record) for row in cell.rows.values()])
    writer.make_searchable()
    writer.save_progress([CellProgress(CELL_UUID, cell.last_sequence, 0, is_complete=True)])
    told: list[object] = []

    def comparison() -> NativeComparison:
        return NativeComparison(
            cell,
            writer,
            catch_up_timeout_s=0,
            contents_at_once=2,
            pause=lambda _: told.append(writer.load_state(REPAIRS)),
        )

    assert verify(comparison(), repair=False).differences == ()
    alter(what, uuids[1])
    found = verify(comparison(), repair=False).differences
    assert [(each.uuid, each.kind) for each in found] == [(uuids[1], ALTERATIONS[what])]
    assert verify(comparison(), repair=True).remaining == ()
    # A document that is not there makes place for nothing.
    assert told == ([] if what == "everything" else [{CELL_UUID: True}])
    assert writer.load_state(REPAIRS) == {}
    assert verify(comparison(), repair=False).differences == ()
    wanted = {uuid: to_document(CELL_UUID, row.revision, row.record) for uuid, row in cell.rows.items()}
    assert {uuid: (each.record, each.view) for uuid, each in writer.read(uuids).items()} == {
        uuid: (each.record, each.view) for uuid, each in wanted.items()
    }
