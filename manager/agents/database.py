"""The agent's database: one SQLite file, by Python's own module, for everything that must survive a restart."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock

from fleetlight.manager.agents.errors import AgentError, DriverError

_FILE = "agent.db"


class AgentDatabase:
    """One connection, which threads use in turn. Raises AgentError when the file cannot be used."""

    def __init__(self, folder: Path) -> None:
        """folder: of the agent; created if missing."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._guard = RLock()
        path = folder / _FILE
        try:
            # Readable only by its owner, whatever the umask; SQLite gives its other files the same rights.
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                # A power cut must not undo answered changes.
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.execute("PRAGMA journal_mode = WAL")
                # A second agent on the same folder fails here, or both would carry out calls.
                self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                with self.transaction() as connection:
                    connection.execute("CREATE TABLE IF NOT EXISTS agent (folder_is_used INTEGER)")
                    connection.execute("DELETE FROM agent")
            except BaseException:
                self._connection.close()
                raise
        except (sqlite3.Error, OSError, DriverError) as error:
            raise AgentError(f"cannot use {path}: {error}; another agent may be running on it") from error

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block in a transaction; a nested one is part of the outer.

        Raises DriverError when the file cannot be read or written, as on a full disk.
        """
        with self._guard:
            if self._connection.in_transaction:
                yield self._connection
                return
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException as error:
                # Some errors of SQLite end the transaction, and others, such as one of COMMIT, do not.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise DriverError(f"the agent cannot keep what it does: {error}") from error
                raise

    def close(self) -> None:
        with self._guard:
            self._connection.close()
