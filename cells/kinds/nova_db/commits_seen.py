"""Whether anything was committed between two looks, where the log of a database server does not say what."""

import time
from collections.abc import Sequence

from sqlalchemy import Connection, Engine

from fleetlight.cells.database.engines import external_cell_failures
from fleetlight.cells.kinds.nova_db.databases import dialect_of, read
from fleetlight.cells.kinds.nova_db.one_server import identity_at, keep_to
from fleetlight.cells.model import ChangeHints, Hints
from fleetlight.resources.clock import Clock

_INTERVAL_S = 1.0
# A transaction gets a number with the first row that it changes, whatever its table; a snapshot names the first number
# that was not given out, and those below it that have not ended. So two equal ones see the same rows. A standby gives
# out none, and has replayed what was committed before it says so.
_POSITION = (
    "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()::text ELSE txid_current_snapshot()::text END"
)


def commits_seen(cell: str, engines: Sequence[Engine], clock: Clock) -> ChangeHints | None:
    """The hints of these databases together; None where one of them does not tell.

    MariaDB does not without a right: whether a schema is left out of its log only an account with BINLOG MONITOR sees.
    """
    is_told = all(dialect_of(engine.url) == "postgresql" for engine in engines)
    return _CommitsSeen(cell, engines, clock) if is_told else None


class _CommitsSeen:
    """ChangeHints (fleetlight.cells.model): nothing was touched, or anything may have been."""

    is_continued = False

    def __init__(self, cell: str, engines: Sequence[Engine], clock: Clock) -> None:
        self._cell = cell
        self._engines = engines
        self._clock = clock
        self._seen: Sequence[str] | None = None
        self._due_s = 0.0

    def take(self) -> Hints | None:
        if time.monotonic() < self._due_s:
            return None
        self._due_s = time.monotonic() + _INTERVAL_S
        at, known, self._seen = self._clock(), self._seen, None
        with external_cell_failures(self._cell):
            if known is None:
                self._keep_to_one_server()
            self._seen = [read(engine, _position) for engine in self._engines]
        return Hints(frozenset() if self._seen == known else None, at)

    def close(self) -> None:
        """Nothing is open between two looks."""

    def _keep_to_one_server(self) -> None:
        """After each failure, since it may be another one by now; everything is compared then."""
        for engine in self._engines:
            keep_to(engine, None)
            keep_to(engine, read(engine, identity_at))


def _position(connection: Connection) -> str:
    return str(connection.exec_driver_sql(_POSITION).scalar_one())
