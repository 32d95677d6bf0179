"""Items other than instances in the SQLite index: one table for all types, outside of the generations.

A record is a JSON text that no search looks into, so the table does not depend on a type's fields, and a rebuild needs
no new one.
"""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from fleetlight.indexer.backends.base import Document
from fleetlight.resources.fields import Record

# The uuid of the row that marks the items of a type as whole; no item has it.
_WHOLE = ""
ITEMS = "items"
CREATE_ITEMS = (
    "CREATE TABLE IF NOT EXISTS items (item_type TEXT NOT NULL, cell_uuid TEXT NOT NULL, uuid TEXT NOT NULL, "
    "version INTEGER NOT NULL, deleted_at INTEGER, record TEXT NOT NULL, "
    "PRIMARY KEY (item_type, cell_uuid, uuid)) STRICT, WITHOUT ROWID"
)
UPSERT_ITEM = (
    "INSERT INTO items (item_type, cell_uuid, uuid, version, deleted_at, record) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (item_type, cell_uuid, uuid) DO UPDATE SET version = excluded.version, "
    "deleted_at = excluded.deleted_at, record = excluded.record WHERE excluded.version > items.version"
)
_MARK = (
    "INSERT OR REPLACE INTO items (item_type, cell_uuid, uuid, version, deleted_at, record) "
    "VALUES (?, ?, '', 0, NULL, '{}')"
)
_OF_CELL = "item_type = ? AND cell_uuid = ?"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def item_row(document: Document) -> tuple[Any, ...]:
    """The values for UPSERT_ITEM."""
    record = document.record
    deleted_at = record["deleted_at"] if record["deleted"] else None
    text = _encode(record).decode()
    return (document.item_type, document.cell_uuid, document.id, document.version, deleted_at, text)


def read_items(connection: sqlite3.Connection, item_type: str, cell_uuid: str) -> dict[str, Document]:
    found = connection.execute(
        f"SELECT uuid, version, record FROM items WHERE {_OF_CELL} AND uuid != '{_WHOLE}'",  # noqa: S608
        (item_type, cell_uuid),
    )
    return {uuid: Document(cell_uuid, version, _decode(text), (), None, item_type) for uuid, version, text in found}


def mark_items(connection: sqlite3.Connection, item_type: str, cell_uuid: str, *, are_whole: bool) -> None:
    if are_whole:
        connection.execute(_MARK, (item_type, cell_uuid))
    else:
        remove_items(connection, item_type, cell_uuid, {_WHOLE: 0})


def are_items_whole(connection: sqlite3.Connection, item_type: str, cell_uuid: str) -> bool:
    statement = f"SELECT 1 FROM items WHERE {_OF_CELL} AND uuid = '{_WHOLE}'"  # noqa: S608
    return connection.execute(statement, (item_type, cell_uuid)).fetchone() is not None


def remove_items(connection: sqlite3.Connection, item_type: str, cell_uuid: str, versions: Mapping[str, int]) -> None:
    """Remove items, each only if it is not newer than this version."""
    statement = f"DELETE FROM items WHERE {_OF_CELL} AND uuid = ? AND version <= ?"  # noqa: S608
    connection.executemany(statement, [(item_type, cell_uuid, *each) for each in versions.items()])


def purge_items(connection: sqlite3.Connection, cell_uuid: str, horizon: int) -> None:
    """Remove items that were deleted before the horizon."""
    connection.execute("DELETE FROM items WHERE cell_uuid = ? AND deleted_at < ?", (cell_uuid, horizon))


def remove_items_of(connection: sqlite3.Connection, cell_uuid: str) -> None:
    connection.execute("DELETE FROM items WHERE cell_uuid = ?", (cell_uuid,))


def search_items(connection: sqlite3.Connection, item_type: str, cells: Collection[str]) -> dict[str, Sequence[Record]]:
    """fleetlight.indexer.backends.base.IndexSearcher.items; one statement, so that all is as of one moment."""
    marks = ", ".join("?" * len(cells))
    statement = (
        f"SELECT cell_uuid, uuid, record FROM items WHERE item_type = ? AND cell_uuid IN ({marks}) "  # noqa: S608
        "AND deleted_at IS NULL"
    )
    whole: set[str] = set()
    records: dict[str, list[Record]] = {}
    for cell_uuid, uuid, text in connection.execute(statement, (item_type, *cells)):
        if uuid == _WHOLE:
            whole.add(cell_uuid)
        else:
            records.setdefault(cell_uuid, []).append(_decode(text))
    return {cell_uuid: records.get(cell_uuid, []) for cell_uuid in whole}
