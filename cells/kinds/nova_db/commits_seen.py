"""Whether anything was committed between two looks, where the log of a database server does not say what."""

import time
from collections.abc import Sequence

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from fleetlight.cells.database.engines import external_cell_failures
from fleetlight.cells.kinds.nova_db.databases import dialect_of, read
from fleetlight.cells.kinds.nova_db.one_server import identity_at, keep_to, times_changed
from fleetlight.cells.model import ChangeHints, Hints
from fleetlight.resources.clock import Clock

_INTERVAL_S = 1.0
# A transaction gets a number with the first row that it changes, whatever its table; a snapshot names the number after
# the last one that has ended, and those below it that have not. So two equal ones see the same rows, of one server that
# did not crash in between: a crash may lose commits and give their numbers out anew, and ends with a checkpoint. What
# a standby lacks it does not say.
_POSITION = (
    "SELECT CASE WHEN NOT pg_is_in_recovery() THEN concat_ws(' ', txid_current_snapshot(), pg_postmaster_start_time(), "
    "inet_server_addr(), inet_server_port(), (pg_control_checkpoint()).checkpoint_lsn) END"
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
        self._seen: Sequence[tuple[int, str]] | None = None
        self._due_s = 0.0

    def take(self) -> Hints | None:
        if time.monotonic() < self._due_s:
            return None
        self._due_s = time.monotonic() + _INTERVAL_S
        at, known, self._seen = self._clock(), self._seen, None
        with external_cell_failures(self._cell):
            if known is None:
                self._keep_to_one_server()
            seen = [(times_changed(engine), read(engine, _position)) for engine in self._engines]
        positions = [(changes, position) for changes, position in seen if position is not None]
        if len(positions) < len(seen):
            return None
        self._seen = positions
        return Hints(frozenset() if positions == known else None, at)

    def close(self) -> None:
        """Nothing is open between two looks."""

    def _keep_to_one_server(self) -> None:
        """After each failure, since it may be another one by now; everything is compared then."""
        for engine in self._engines:
            try:
                keep_to(engine, read(engine, identity_at))
            except DBAPIError:
                keep_to(engine, None)
                keep_to(engine, read(engine, identity_at))


def _position(connection: Connection) -> str | None:
    """None on a standby."""
    found: str | None = connection.exec_driver_sql(_POSITION).scalar_one()
    return found
