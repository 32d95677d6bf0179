"""The generations of the SQLite index: tables of one file, which change their names in one transaction.

Another file could not be put in the place of one that other processes have open, and would leave them with the old one.
Who holds the write lock of the file pauses all writing, and a killed process holds nothing.
"""

import time
from collections.abc import Callable
from pathlib import Path

from indexer.backends.sqlite import SqliteWriter
from indexer.backends.sqlite_schema import NEXT_SUFFIX, PREVIOUS_SUFFIX, creation_statements

_TABLES = ("documents", "progress")


class SqliteGenerations:
    """indexer.backends.base.Generations."""

    def __init__(self, path: Path, *, schemas_dir: Path | None = None) -> None:
        # One connection for both: in a pause only the one that holds the lock can write.
        self._writer = SqliteWriter(path, schemas_dir=schemas_dir, of_next=True)

    def has_next(self) -> bool:
        return self._has(NEXT_SUFFIX)

    def has_previous(self) -> bool:
        return self._has(PREVIOUS_SUFFIX)

    def create_next(self) -> None:
        with self._writer.transaction() as connection:
            for statement in creation_statements(NEXT_SUFFIX, f"_{time.time_ns()}"):
                connection.execute(statement)

    def take_previous_as_next(self) -> None:
        with self._writer.transaction() as connection:
            self._rename({PREVIOUS_SUFFIX: NEXT_SUFFIX})
            connection.execute(f"DELETE FROM progress{NEXT_SUFFIX}")  # noqa: S608

    def open_next(self) -> SqliteWriter:
        return self._writer

    def switch(self, finish: Callable[[], None]) -> None:
        with self._writer.transaction() as connection:
            finish()
            self._drop(PREVIOUS_SUFFIX)
            # What is known of the cells stays true: the next one has at least what the current one has.
            connection.execute(f"DELETE FROM progress{NEXT_SUFFIX}")  # noqa: S608
            connection.execute(f"INSERT INTO progress{NEXT_SUFFIX} SELECT * FROM progress")  # noqa: S608
            self._rename({"": PREVIOUS_SUFFIX, NEXT_SUFFIX: ""})

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
