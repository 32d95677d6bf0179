"""Writes to the embedded index: one SQLite file in WAL mode, so that searches never wait for the writer.

The writer creates the file and its tables; searchers open the file read-only.
"""

import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

import msgspec

from fleetlight.cells.batched import batched
from fleetlight.cells.database.sqlite_files import make_private, use_write_ahead_log
from fleetlight.cells.digests import RangeDigest, register_digest
from fleetlight.indexer.backends.base import CellProgress, Document, Rejection, WriteResult, ignore_removed
from fleetlight.indexer.backends.damaged import read_around_damage
from fleetlight.indexer.backends.extra import count_schema_violations, described_documents
from fleetlight.indexer.backends.seal import Seal
from fleetlight.indexer.backends.sqlite import other_items
from fleetlight.indexer.backends.sqlite.damage import put_aside
from fleetlight.indexer.backends.sqlite.digests import (
    ComparedDocuments,
    count_external,
    forgotten_rows,
    read_digests,
    read_revisions,
)
from fleetlight.indexer.backends.sqlite.schema import (
    BUSY_TIMEOUT_S,
    DOCUMENTS,
    NEXT_DOCUMENTS,
    NEXT_SUFFIX,
    SCHEMA_VERSION,
    UNSTORABLE,
    creation_statements,
    document_of,
    file_of,
    read_progress,
    require_known_schema,
    row_of,
    schema_version,
    translated,
    upsert_statement,
)
from fleetlight.indexer.backends.sqlite.seal import Account, SqliteSeal, account_for, make_seal, read_account
from fleetlight.indexer.errors import IndexDamagedError, IndexReplacedError, IndexUnreadableError
from fleetlight.resources.clock import Clock

_READ_BATCH = 500
# A batch is a transaction, for which other writers wait.
_REMOVE_BATCH = 1000
_STATE = "state"
_CREATE_STATE = (
    "CREATE TABLE IF NOT EXISTS state (kind TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, "
    "PRIMARY KEY (kind, name)) STRICT"
)


class SqliteWriter:
    """The writing side (fleetlight.indexer.backends.base.IndexWriter). Threads may share it; one at a time works."""

    def __init__(self, path: Path, *, schemas_dir: Path | None = None, of_next: bool = False) -> None:
        """schemas_dir: see IndexSettings. of_next: read and write the next generation."""
        self._schemas_dir = schemas_dir
        self._path = path
        # Reentrant, since a thread may write within a transaction that it has begun (`transaction`).
        self._mutex = RLock()
        self._of_next = of_next
        self._documents = NEXT_DOCUMENTS if of_next else DOCUMENTS
        self._progress = f"progress{NEXT_SUFFIX}" if of_next else "progress"
        self._upsert = upsert_statement(self._documents)
        # The file that was prepared; None before.
        self._file: tuple[int, int] | None = None
        self._is_damaged = False
        # How many changes were accounted for at the last use; fewer means that the file is an older copy.
        self._accounted = 0
        self._open()

    def _open(self) -> None:
        # In bytes; the file only grows.
        self._size = 0
        with translated(self._path):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            make_private(self._path)
            self._connection = sqlite3.connect(
                self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            # None if SQLite creates the file with the first statement.
            self._opened = file_of(self._path)
            register_digest(self._connection)

    def prepare(self) -> None:
        """Prepare the file; an unreadable one is put aside, and a new one created."""
        with self._mutex:
            self._accounted = 0
            if self._is_damaged or (self._file is not None and self._file != file_of(self._path)):
                self._open_anew()
            try:
                self._prepare()
            except IndexDamagedError:
                self._open_anew()
                self._prepare()
            self._file = self._opened = file_of(self._path)

    def _open_anew(self) -> None:
        self._connection.close()
        # Another process may already have put the damaged file aside, and filled a new one.
        if self._is_damaged and self._opened == file_of(self._path):
            with translated(self._path):
                put_aside(self._path)
        self._is_damaged = False
        self._open()

    def _prepare(self) -> None:
        with self._using():
            # NORMAL can lose the last transactions at a power failure, but keeps their order. Documents and the
            # watermark that covers them are in the same file, so lost changes are read again from the cells.
            self._connection.execute("PRAGMA synchronous = NORMAL")
            use_write_ahead_log(self._connection, BUSY_TIMEOUT_S)
        with self.transaction():
            version = schema_version(self._connection)
            if version in (0, SCHEMA_VERSION):
                self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                self._create_tables()
            else:
                self._connection.execute(_CREATE_STATE)
                self._connection.execute(other_items.CREATE_ITEMS)
        with self._using():
            require_known_schema(self._connection, self._path)

    def _create_tables(self) -> None:
        """Create missing tables, and empty those that depend on them: progress does not hold without documents and
        facts, and facts may be about other documents.
        """
        tables = {self._documents.name, self._progress, _STATE, other_items.ITEMS}
        missing = tables - {name for (name,) in self._connection.execute("SELECT name FROM sqlite_schema")}
        if missing - {other_items.ITEMS}:
            self._create_what_depends(with_documents=self._documents.name in missing)
        self._connection.execute(other_items.CREATE_ITEMS)
        if missing or read_account(self._connection) is None:
            make_seal(self._connection, is_broken=missing != tables)

    def _create_what_depends(self, *, with_documents: bool) -> None:
        for table in (self._progress, _STATE):
            self._connection.execute(f"DROP TABLE IF EXISTS {table}")
        # Indexes keep their names when a rebuild renames their table.
        documents, progress, *indexes = creation_statements("", f"_{time.time_ns()}")
        of_documents = [documents, *indexes] if with_documents else []
        for statement in (*of_documents, progress, _CREATE_STATE):
            self._connection.execute(statement)

    def write(self, documents: Iterable[Document]) -> WriteResult:
        schema_violations = 0
        try:
            rows, item_rows = [], []
            for document in described_documents(documents, self._schemas_dir):
                if not document.is_instance:
                    item_rows.append(other_items.item_row(document))
                    continue
                rows.append(row_of(document))
                schema_violations += 0 if document.extra is None else len(document.extra.schema_violations)
            with self._writing():
                # rowcount has only inserted and updated rows; the rest were not newer.
                applied = self._connection.executemany(self._upsert, rows).rowcount if rows else 0
                applied += self._connection.executemany(other_items.UPSERT_ITEM, item_rows).rowcount if item_rows else 0
        except UNSTORABLE:
            return self._write_one_by_one(list(described_documents(documents, self._schemas_dir)))
        return WriteResult(applied, len(rows) + len(item_rows) - applied, schema_violations=schema_violations)

    def make_searchable(self) -> None:
        """Committed rows are searchable at once. Raises IndexReplacedError if the file is not the prepared one."""
        if self._is_damaged or (self._file is not None and self._file != file_of(self._path)):
            raise IndexReplacedError(str(self._path))
        self.read_account()

    def open_seal(self, clock: Clock) -> Seal:
        return SqliteSeal(self, clock)

    def read_account(self) -> Account | None:
        """Read the seal's account. Raises IndexReplacedError if it is lower than before."""
        with self._using():
            account = read_account(self._connection)
            accounted = 0 if account is None else account.accounted
            if accounted < self._accounted:
                raise IndexReplacedError(str(self._path))
            self._accounted = accounted
            return account

    def read(self, ids: Collection[str]) -> Mapping[str, Document]:
        return read_around_damage(ids, self._read)

    def _read(self, ids: Collection[str]) -> Mapping[str, Document]:
        found: dict[str, Document] = {}
        with self._using():
            for batch in batched(ids, _READ_BATCH):
                marks = ", ".join("?" * len(batch))
                rows = self._connection.execute(f"SELECT * FROM {self._documents.name} WHERE uuid IN ({marks})", batch)  # noqa: S608
                found.update((document.id, document) for document in map(document_of, rows))
        return found

    def versions(self, ids: Collection[str]) -> Mapping[str, int]:
        found: dict[str, int] = {}
        with self._using():
            for batch in batched(ids, _READ_BATCH):
                marks = ", ".join("?" * len(batch))
                statement = f"SELECT uuid, version FROM {self._documents.name} WHERE uuid IN ({marks})"  # noqa: S608
                found.update(self._connection.execute(statement, batch).fetchall())
        return found

    def digests(
        self, cell_uuid: str, prefixes: Sequence[str], length: int, *, horizon: int = 0, external: bool = False
    ) -> Mapping[str, RangeDigest]:
        compared = ComparedDocuments(self._documents, cell_uuid, horizon, external)
        with self._using():
            return read_digests(self._connection, compared, prefixes, length)

    def revisions(
        self, cell_uuid: str, prefixes: Sequence[str], *, horizon: int = 0, external: bool = False
    ) -> Mapping[str, int]:
        compared = ComparedDocuments(self._documents, cell_uuid, horizon, external)
        with self._using():
            return read_revisions(self._connection, compared, prefixes)

    def count_external(self, cell_uuid: str) -> int:
        with self._using():
            return count_external(self._connection, self._documents, cell_uuid)

    def remove(self, versions: Mapping[str, int]) -> None:
        with self.transaction():
            statement = f"DELETE FROM {self._documents.name} WHERE uuid = ? AND version <= ?"  # noqa: S608
            self._connection.executemany(statement, versions.items())

    def items(self, item_type: str, cell_uuid: str) -> Mapping[str, Document]:
        with self._using():
            return other_items.read_items(self._connection, item_type, cell_uuid)

    def remove_items(self, item_type: str, cell_uuid: str, versions: Mapping[str, int]) -> None:
        with self.transaction() as connection:
            other_items.remove_items(connection, item_type, cell_uuid, versions)

    def mark_items(self, item_type: str, cell_uuid: str, *, are_whole: bool) -> None:
        with self.transaction() as connection:
            other_items.mark_items(connection, item_type, cell_uuid, are_whole=are_whole)

    def are_items_whole(self, item_type: str, cell_uuid: str) -> bool:
        with self._using():
            return other_items.are_items_whole(self._connection, item_type, cell_uuid)

    def save_progress(
        self, progress: Sequence[CellProgress], over: Mapping[str, CellProgress] | None = None
    ) -> Set[str]:
        self.make_searchable()
        with self._writing():
            saved = read_progress(self._connection, self._progress) if over else {}
            changed = {uuid for uuid, known in (over or {}).items() if saved.get(uuid) != known}
            self._connection.executemany(
                f"INSERT OR REPLACE INTO {self._progress} (cell_uuid, watermark, fresh_as_of, is_complete) "  # noqa: S608
                "VALUES (?, ?, ?, ?)",
                [
                    (cell.cell_uuid, cell.watermark, cell.fresh_as_of, cell.is_complete)
                    for cell in progress
                    if cell.cell_uuid not in changed
                ],
            )
        return changed.intersection(cell.cell_uuid for cell in progress)

    def load_progress(self) -> Mapping[str, CellProgress]:
        with self._using():
            return read_progress(self._connection, self._progress)

    def count_extra_fields(self) -> Mapping[str, int]:
        table = self._documents.name
        statement = (
            f"SELECT field.value, count(*) FROM {table}, json_each({table}.other, '$.extra.fields') AS field "  # noqa: S608
            "GROUP BY field.value"
        )
        with self._using():
            return dict(self._connection.execute(statement).fetchall())

    def find_extra(self, terms: Sequence[str], limit: int) -> Sequence[str]:
        marks = ", ".join("?" * len(terms))
        statement = (
            f"SELECT uuid FROM {self._documents.name} WHERE EXISTS ("  # noqa: S608
            f"SELECT 1 FROM json_each(other, '$.extra.terms') AS term WHERE term.value IN ({marks})"
            ") ORDER BY uuid LIMIT ?"
        )
        with self._using():
            return [uuid for (uuid,) in self._connection.execute(statement, [*terms, limit])]

    def save_state(self, kind: str, values: Mapping[str, object | None]) -> None:
        with self.transaction():
            for name, value in values.items():
                if value is None:
                    self._connection.execute("DELETE FROM state WHERE kind = ? AND name = ?", (kind, name))
                else:
                    encoded = msgspec.json.encode(value)
                    self._connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?)", (kind, name, encoded))

    def load_state(self, kind: str) -> Mapping[str, Any]:
        with self._using():
            found = self._connection.execute("SELECT name, value FROM state WHERE kind = ?", (kind,))
            return {name: msgspec.json.decode(value) for name, value in found}

    def purge(self, cell_uuid: str, horizon: int, on_batch: Callable[[int], None] = ignore_removed) -> int:
        removed = 0
        with self.transaction() as connection:
            other_items.purge_items(connection, cell_uuid, horizon)
        while True:
            with self.transaction():
                rows = forgotten_rows(self._connection, self._documents, cell_uuid, horizon, _REMOVE_BATCH)
                self._connection.executemany(f"DELETE FROM {self._documents.name} WHERE rowid = ?", rows)  # noqa: S608
            if not rows:
                return removed
            removed += len(rows)
            on_batch(removed)

    def allow_writes(self) -> None:
        """Do nothing: a pause is a write lock, which ends with its process."""

    def remove_cell(self, cell_uuid: str, on_batch: Callable[[int], None] = ignore_removed) -> int:
        with self.transaction():
            self._connection.execute(f"DELETE FROM {self._progress} WHERE cell_uuid = ?", (cell_uuid,))  # noqa: S608
            other_items.remove_items_of(self._connection, cell_uuid)
        removed, last = 0, 0
        table = self._documents.name
        # In row order, so that all batches together read the table once.
        removable = f"SELECT rowid FROM {table} WHERE rowid > ? AND cell_uuid = ? ORDER BY rowid LIMIT ?"  # noqa: S608
        while True:
            with self.transaction():
                rows = self._connection.execute(removable, (last, cell_uuid, _REMOVE_BATCH)).fetchall()
                self._connection.executemany(f"DELETE FROM {table} WHERE rowid = ?", rows)  # noqa: S608
            if not rows:
                return removed
            removed += len(rows)
            last = rows[-1][0]
            on_batch(removed)

    def close(self) -> None:
        with self._mutex:
            self._connection.close()

    def _write_one_by_one(self, documents: Sequence[Document]) -> WriteResult:
        applied, rejected = 0, []
        with self._writing():
            for document in documents:
                try:
                    applied += self._write_one(document)
                except UNSTORABLE as error:
                    rejected.append(Rejection(document, str(error)))
        stale = len(documents) - applied - len(rejected)
        return WriteResult(applied, stale, tuple(rejected), count_schema_violations(documents))

    def _write_one(self, document: Document) -> int:
        statement, row = (
            (self._upsert, row_of) if document.is_instance else (other_items.UPSERT_ITEM, other_items.item_row)
        )
        return self._connection.execute(statement, row(document)).rowcount

    @contextmanager
    def _using(self) -> Iterator[None]:
        with self._mutex:
            try:
                with translated(self._path):
                    yield
            except IndexDamagedError:
                self._is_damaged = True
                raise
            except IndexUnreadableError as error:
                # If the file was an index before, it is known to be ours.
                if self._file is None or self._file != file_of(self._path):
                    raise
                self._is_damaged = True
                raise IndexDamagedError(str(self._path), error.reason) from error

    def _require_whole(self) -> None:
        """Raises IndexDamagedError if the file was truncated, which the part of it in memory would hide for long."""
        size = self._path.stat().st_size if self._path.exists() else self._size
        if size < self._size:
            raise IndexDamagedError(str(self._path), f"it was cut from {self._size} to {size} bytes")
        self._size = size

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction for tables of our version, checked in case another program has rebuilt them."""
        with self.transaction():
            if not self._of_next:
                require_known_schema(self._connection, self._path)
            yield

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock of the file. The connection may change tables; for their rows use `_writing`."""
        with self._using():
            if self._connection.in_transaction:
                yield self._connection
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._require_whole()
                before = self.read_account()
                yield self._connection
                accounted = account_for(self._connection, before)
                self._connection.execute("COMMIT")
                self._accounted = accounted
            finally:
                # Some errors, such as a full disk, end the transaction themselves.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
