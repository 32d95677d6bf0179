"""A new file of SQLite, which several connections put into write-ahead mode."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fleetlight.cells.database.sqlite_files import use_write_ahead_log


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Has the file for itself, so SQLite refuses the switch."""
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield connection


def connect(tmp_path: Path, **options: Any) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(tmp_path / "x.db", timeout=0, isolation_level=None, **options))


def test_connection_that_was_refused_tries_again_until_the_file_is_free(
    tmp_path: Path, holder: sqlite3.Connection
) -> None:
    class Refused(sqlite3.Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            try:
                return super().execute(*arguments)
            except sqlite3.OperationalError:
                holder.rollback()
                raise

    with connect(tmp_path, factory=Refused) as connection:
        use_write_ahead_log(connection, timeout_s=60)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.usefixtures("holder")
def test_file_that_stays_locked_is_an_error(tmp_path: Path) -> None:
    with connect(tmp_path) as connection, pytest.raises(sqlite3.OperationalError, match="locked"):
        use_write_ahead_log(connection, timeout_s=0.05)


def test_file_that_is_no_database_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"no database" * 100)
    with connect(tmp_path) as connection, pytest.raises(sqlite3.DatabaseError, match="not a database"):
        use_write_ahead_log(connection, timeout_s=60)
