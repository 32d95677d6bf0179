"""The API database of a deployment, shared by its cells that are open in this process."""

import threading
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from functools import partial

from sqlalchemy import Connection, select

from fleetlight.cells.daemon_threads import DaemonThreads
from fleetlight.cells.kinds.nova_db.databases import dialect_of, open_nova_database, read
from fleetlight.cells.kinds.nova_db.deployment import read_homes
from fleetlight.cells.kinds.nova_db.details import ApiDetails, Details

# Connections of one process to the API database of a deployment, however many cells it has.
_CONNECTIONS = 8

_Key = tuple[str, float | None]


class ApiDatabase:
    """Reads details of the instances of a page from the API database, while the cell's database gives the others."""

    def __init__(self, url: str, statement_timeout_s: float | None) -> None:
        """Raises DatabaseUrlError."""
        self.engine = open_nova_database(url, statement_timeout_s=statement_timeout_s, pool_size=_CONNECTIONS)
        self._details = ApiDetails(dialect_of(self.engine.url))
        self._threads = DaemonThreads(_CONNECTIONS, "nova-api-database")

    def begin(self, details: Mapping[str, Details]) -> Future[None]:
        """Begin to fill in `details`, by uuid; the future raises errors."""
        return self._threads.submit(partial(read, self.engine, partial(self._details.read, details=details)))

    def probe(self) -> Future[None]:
        """As `begin`, with the cheapest query."""
        return self._threads.submit(partial(read, self.engine, _ask_nothing))

    def begin_locating(self, uuids: Collection[str]) -> Future[Mapping[str, str | None]]:
        """As `begin`, for the cells to which instances are mapped (read_homes)."""
        return self._threads.submit(partial(read, self.engine, partial(read_homes, uuids=uuids)))

    def close(self) -> None:
        self._threads.shutdown(wait=True)
        self.engine.dispose()


def _ask_nothing(connection: Connection) -> None:
    connection.execute(select(1))


class SharedApiDatabases:
    """The open API databases, each open as long as it is used; thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._open: dict[_Key, ApiDatabase] = {}
        self._users: dict[_Key, int] = {}

    def use(self, url: str, statement_timeout_s: float | None) -> ApiDatabase:
        """Open or share a database; call `leave` once afterwards. Raises DatabaseUrlError."""
        key = (url, statement_timeout_s)
        with self._guard:
            if key not in self._open:
                self._open[key] = ApiDatabase(url, statement_timeout_s)
            self._users[key] = self._users.get(key, 0) + 1
            return self._open[key]

    def leave(self, database: ApiDatabase) -> None:
        """Close a database if nothing else uses it."""
        with self._guard:
            key = next(key for key, opened in self._open.items() if opened is database)
            self._users[key] -= 1
            is_unused = not self._users[key]
            if is_unused:
                del self._open[key], self._users[key]
        if is_unused:
            database.close()


API_DATABASES = SharedApiDatabases()
"""The API databases of this process."""
