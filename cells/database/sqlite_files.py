"""SQLite files: private to their owner, and used without readers and the writer waiting for each other."""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed


def make_private(path: Path) -> None:
    """Create a missing database file for this user alone; an existing one keeps its rights, and is not opened.

    Closing a file would release SQLite's own locks on it (https://sqlite.org/howtocorrupt.html, 2.2). Files that SQLite
    creates beside it (log, shared memory) inherit its rights. If no file can be created, SQLite itself reports why.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


_PAUSE_S = 0.01


def use_write_ahead_log(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Switch the connection's file to a write-ahead log, unless it already has one.

    If several connections switch a new file at once, SQLite refuses all but one without waiting for the connection's
    timeout, since each would wait for the others' read locks. So refused ones try again here.
    Raises sqlite3.OperationalError if the file is still locked after `timeout_s`, or cannot be used.
    """
    for attempt in Retrying(
        retry=retry_if_exception(_is_locked), stop=stop_after_delay(timeout_s), wait=wait_fixed(_PAUSE_S), reraise=True
    ):
        with attempt:
            connection.execute("PRAGMA journal_mode = WAL")


def _is_locked(error: BaseException) -> bool:
    # Errors that the driver itself raises have no code.
    code: int = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, sqlite3.OperationalError) and code & 0xFF == sqlite3.SQLITE_BUSY
