"""The one SQLite file of the embedded index: its version and its errors, for writer and searchers."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.backends.sqlite.schema import SCHEMA_VERSION
from fleetlight.indexer.errors import (
    IndexAbsentError,
    IndexDamagedError,
    IndexQueryError,
    IndexRequestError,
    IndexUnavailableError,
    IndexUnreadableError,
    IndexVersionError,
)

BUSY_TIMEOUT_S = 5.0
# Result codes after which the same call may succeed later. After any other a person must look.
_PASSING = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PROTOCOL,
    }
)
# That of a statement, as of one that is nested too deeply.
_OF_QUERY = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_TOOBIG})
_DAMAGED = sqlite3.SQLITE_CORRUPT
# Of a file of something else, and of an index whose first page is destroyed: the file alone does not show which.
_UNREADABLE = sqlite3.SQLITE_NOTADB
_NOT_PREPARED = "no such table"
# What a document is refused with: the driver does for a value that does not fit its column (too big, not Unicode, of
# another type), and the decoder for what its cell has kept of it, and is no JSON.
UNSTORABLE = (
    OverflowError,
    UnicodeEncodeError,
    msgspec.DecodeError,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
)


def read_progress(connection: sqlite3.Connection, table: str = "progress") -> dict[str, CellProgress]:
    """How far each cell is followed, by its uuid; from `table`, that of the progress of some generation."""
    return {
        cell_uuid: CellProgress(cell_uuid, watermark, fresh_as_of, bool(is_complete))
        for cell_uuid, watermark, fresh_as_of, is_complete in connection.execute(
            f"SELECT cell_uuid, watermark, fresh_as_of, is_complete FROM {table}"  # noqa: S608
        )
    }


def require_known_schema(version: int, path: Path) -> None:
    """Raise IndexUnavailableError when the file is not prepared yet, IndexVersionError when it is another program's."""
    if version == 0:
        raise IndexUnavailableError(f"the index {path} has not been prepared yet: start the indexer")
    if version != SCHEMA_VERSION:
        raise IndexVersionError(str(path), version, SCHEMA_VERSION, SCHEMA_VERSION)


def file_of(path: Path) -> tuple[int, int] | None:
    """Which file is there now, as no other one is called while it is open; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def query_translated(path: Path) -> Iterator[None]:
    """Raise what SQLite refuses a query with, and not the file, as an error of that query; all else passes."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code in _OF_QUERY and not str(error).startswith(_NOT_PREPARED):
            raise IndexQueryError(error.sqlite_errorname, f"{path}: {error}") from error
        raise


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as ours; what a value that does not fit raises passes, `write` needs to see it."""
    try:
        yield
    except UNSTORABLE:
        raise
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if str(error).startswith(_NOT_PREPARED) or not path.exists():
            raise IndexAbsentError(f"the index {path} is not there: {error}") from error
        if code is not None and code & 0xFF in _PASSING:
            raise IndexUnavailableError(f"the index {path} cannot be used now: {error}") from error
        if code is not None and code & 0xFF == _DAMAGED:
            raise IndexDamagedError(str(path), str(error)) from error
        if code is not None and code & 0xFF == _UNREADABLE:
            raise IndexUnreadableError(str(path), str(error)) from error
        raise IndexRequestError(f"the index {path} refused a request: {error}") from error
    except OSError as error:
        raise IndexUnavailableError(f"the index {path} cannot be used now: {error}") from error
