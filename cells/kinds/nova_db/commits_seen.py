"""Hints whether anything was committed between two queries, for database servers without a readable log."""

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
# A transaction gets a number with its first change, in any table; a snapshot has the number after the last ended
# transaction, and those of running ones. So two equal snapshots see the same rows, if the server did not crash in
# between: a crash may lose commits, whose numbers are assigned again, and ends with a checkpoint. A standby does not
# show how far it is behind.
_POSITION = (
    "SELECT CASE WHEN NOT pg_is_in_recovery() THEN concat_ws(' ', txid_current_snapshot(), pg_postmaster_start_time(), "
    "inet_server_addr(), inet_server_port(), (pg_control_checkpoint()).checkpoint_lsn) END"
)


def commits_seen(cell: str, engines: Sequence[Engine], clock: Clock) -> ChangeHints | None:
    """The hints of these databases together; None if one of them cannot tell.

    MariaDB cannot: only an account with BINLOG MONITOR sees whether its log leaves out a schema.
    """
    is_told = all(dialect_of(engine.url) == "postgresql" for engine in engines)
    return _CommitsSeen(cell, engines, clock) if is_told else None


class _CommitsSeen:
    """ChangeHints (fleetlight.cells.model) that name either no instance, or any."""

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
        """Nothing is open between two queries."""

    def _keep_to_one_server(self) -> None:
        """Keep to the server that answers now. Called after each failure; then everything is compared."""
        for engine in self._engines:
            try:
                keep_to(engine, read(engine, identity_at))
            except DBAPIError:
                keep_to(engine, None)
                keep_to(engine, read(engine, identity_at))


def _position(connection: Connection) -> str | None:
    """The snapshot of the server; None on a standby."""
    found: str | None = connection.exec_driver_sql(_POSITION).scalar_one()
    return found
