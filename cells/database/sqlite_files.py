"""SQLite files: their owner alone may read and write them, and readers and the writer do not wait for each other."""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed


def make_private(path: Path) -> None:
    """Make the file of a database that is not there yet; one that is there keeps its rights, and is not opened.

    A process that closes a file gives up the locks that SQLite holds on it (https://sqlite.org/howtocorrupt.html, 2.2).
    What SQLite lays beside a file (its log, its shared memory) gets the rights of the file. SQLite itself says what is
    wrong where no file can be made.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


_PAUSE_S = 0.01


def use_write_ahead_log(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Switch the file of the connection, unless it is switched already.

    When several connections switch a new file at once, SQLite refuses all but one without waiting for the timeout of
    the connection, since each would wait for the read lock of the others. So the refused ones try again here.

    Raises sqlite3.OperationalError when the file is still locked after `timeout_s`, or cannot be used.
    """
    for attempt in Retrying(
        retry=retry_if_exception(_is_locked), stop=stop_after_delay(timeout_s), wait=wait_fixed(_PAUSE_S), reraise=True
    ):
        with attempt:
            connection.execute("PRAGMA journal_mode = WAL")


def _is_locked(error: BaseException) -> bool:
    # The driver gives the errors that it raises by itself no code.
    code: int = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, sqlite3.OperationalError) and code & 0xFF == sqlite3.SQLITE_BUSY
