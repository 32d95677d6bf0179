"""Waiting for the next commit to a database, for a process that has found nothing to do in it."""

import os
import time
from threading import Event
from urllib.parse import unquote

from sqlalchemy import Engine

# Clocks of file systems go in steps of some milliseconds: two commits of one step leave the same time.
_CLOCK_STEP_NS = 50_000_000


class Commits:
    """Whether anybody may have committed to the database of `engine`, asked far more cheaply than by a query.

    SQLite writes each commit to the log beside its file (https://sqlite.org/wal.html#the_wal_file). Other databases say
    nothing to those who are not connected: there anything may have been committed at any time.
    """

    def __init__(self, engine: Engine) -> None:
        is_file = engine.dialect.name == "sqlite"
        name = unquote(str(engine.url.database).removeprefix("file:"))
        self._log = f"{name}-wal" if is_file else None
        self._seen: tuple[int, int, int] | None = None

    def wait(self, stop: Event, interval_s: float, longest_s: float) -> None:
        """Wait until something may have been committed since the last wait: it is asked every `interval_s`.

        Returns as well when `stop` is set, and after `longest_s`, or the interval where that is longer.
        """
        until_s = time.monotonic() + longest_s
        while not stop.wait(interval_s) and not self._may_be_new() and time.monotonic() < until_s:
            pass

    def _may_be_new(self) -> bool:
        if self._log is None:
            return True
        try:
            found = os.stat(self._log)
        except OSError:
            return True
        state = found.st_ino, found.st_size, found.st_mtime_ns
        is_new = state != self._seen
        self._seen = state if time.time_ns() - found.st_mtime_ns > _CLOCK_STEP_NS else None
        return is_new
