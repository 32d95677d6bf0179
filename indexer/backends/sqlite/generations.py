"""The generations of the SQLite index: tables of one file, which are renamed in one transaction.

A separate file could not replace one that other processes have open: they would go on with the old one. The process
that holds the file's write lock pauses all writing, and a killed process holds no lock.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION, BareDocument
from fleetlight.indexer.backends.sqlite.schema import (
    NEXT_SUFFIX,
    PREVIOUS_SUFFIX,
    SCHEMA_VERSION,
    bare_record,
    creation_statements,
    schema_version,
)
from fleetlight.indexer.backends.sqlite.seal import make_seal
from fleetlight.indexer.backends.sqlite.writer import SqliteWriter
from fleetlight.indexer.errors import RebuildError

_TABLES = ("documents", "progress")
_SCHEMAS, _PREVIOUS = "schema", "previous"
_BATCH = 500


class SqliteGenerations:
    """fleetlight.indexer.backends.base.Generations."""

    def __init__(self, path: Path, *, schemas_dir: Path | None = None) -> None:
        # The writer's connection is used for both: during a pause only the connection that holds the lock can write.
        self._writer = SqliteWriter(path, schemas_dir=schemas_dir, of_next=True)

    def has_next(self) -> bool:
        return self._has(NEXT_SUFFIX)

    def has_previous(self) -> bool:
        return self._has(PREVIOUS_SUFFIX)

    def names(self) -> tuple[str | None, str | None]:
        return None, None  # both are in one file

    def is_unusable(self) -> bool:
        with self._writer.transaction() as connection:
            return schema_version(connection) != SCHEMA_VERSION

    def bare_documents(self, cell_uuid: str) -> Iterator[Sequence[BareDocument]]:
        """Yield bare documents: every schema had these columns, one for each compared field, and one for the others."""
        statement = (
            "SELECT rowid, * FROM documents WHERE cell_uuid = ? AND version >= ? AND rowid > ? ORDER BY rowid LIMIT ?"
        )
        last = 0
        while True:
            with self._writer.transaction() as connection:
                found = connection.execute(statement, (cell_uuid, OLDEST_TIME_VERSION, last, _BATCH))
                names = [column[0] for column in found.description]
                rows = [dict(zip(names, row, strict=True)) for row in found]
            yield [BareDocument(row["version"], bare_record(row)) for row in rows]
            if len(rows) < _BATCH:
                return
            last = rows[-1]["rowid"]

    def create_next(self) -> None:
        with self._writer.transaction() as connection:
            for statement in creation_statements(NEXT_SUFFIX, f"_{time.time_ns()}"):
                connection.execute(statement)
            make_seal(connection, is_broken=False)

    def take_previous_as_next(self) -> None:
        """Raises RebuildError if the previous index has another version."""
        version = self._writer.load_state(_SCHEMAS).get(_PREVIOUS, SCHEMA_VERSION)
        if version != SCHEMA_VERSION:
            raise RebuildError(f"the previous index has schema version {version}, this program uses {SCHEMA_VERSION}")
        with self._writer.transaction() as connection:
            self._rename({PREVIOUS_SUFFIX: NEXT_SUFFIX})
            make_seal(connection, is_broken=False)
            connection.execute(f"DELETE FROM progress{NEXT_SUFFIX}")  # noqa: S608

    def open_next(self) -> SqliteWriter:
        return self._writer

    def switch(self, finish: Callable[[], None]) -> None:
        with self._writer.transaction() as connection:
            finish()
            self._drop(PREVIOUS_SUFFIX)
            # Progress stays true, because the next index has at least what the current one has.
            connection.execute(f"DELETE FROM progress{NEXT_SUFFIX}")  # noqa: S608
            connection.execute(f"INSERT INTO progress{NEXT_SUFFIX} SELECT * FROM progress")  # noqa: S608
            self._writer.save_state(_SCHEMAS, {_PREVIOUS: schema_version(connection)})
            self._rename({"": PREVIOUS_SUFFIX, NEXT_SUFFIX: ""})
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            make_seal(connection, is_broken=False)

    def drop_next(self) -> None:
        self._drop(NEXT_SUFFIX)

    def drop_previous(self) -> None:
        self._drop(PREVIOUS_SUFFIX)

    def close(self) -> None:
        self._writer.close()

    def _has(self, suffix: str) -> bool:
        with self._writer.transaction() as connection:
            found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (f"documents{suffix}",))
            return found.fetchone() is not None

    def _rename(self, suffixes: dict[str, str]) -> None:
        with self._writer.transaction() as connection:
            for old, new in suffixes.items():
                for table in _TABLES:
                    connection.execute(f"ALTER TABLE {table}{old} RENAME TO {table}{new}")

    def _drop(self, suffix: str) -> None:
        with self._writer.transaction() as connection:
            for table in _TABLES:
                connection.execute(f"DROP TABLE IF EXISTS {table}{suffix}")
