"""Warns of a process that is older than the tables of its databases, and lets it run.

It is not refused: during an upgrade the old APIs and indexers run until they are replaced
(docs/operations/production.md), and one restarted meanwhile, say after a crash, works as well as one that was not. If
it needs something that the newer tables lack, it fails there, and the log already has the reason.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

import structlog
from sqlalchemy import Engine

from fleetlight.cells.database.engines import cell_failures, create_database_engine
from fleetlight.cells.errors import CellUnreachableError, DatabaseUrlError, FleetUnreachableError, NewerTablesError
from fleetlight.cells.fleet.database import translated_fleet_failures
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.migrations import newer_revision_of_cell, newer_revision_of_fleet
from fleetlight.cells.model import Cell

_log = structlog.get_logger(__name__)

# The pause between attempts to reach databases.
_PAUSE_S = 10.0


@contextmanager
def telling_of_newer_tables(fleet: Fleet) -> Iterator[None]:
    """Check the schema of each database once, as soon as it answers, beside the block."""
    stop = Event()
    # A daemon thread, since a database may hang.
    Thread(target=_look, args=(fleet, stop), name="newer-tables", daemon=True).start()
    try:
        yield
    finally:
        stop.set()


def _look(fleet: Fleet, stop: Event) -> None:
    has_seen_fleet, seen = False, set[str]()
    while True:
        try:
            if not has_seen_fleet:
                with translated_fleet_failures():
                    _tell("fleet", fleet.database.engine, newer_revision_of_fleet)
                has_seen_fleet = True
            unseen = [cell for cell in fleet.cells() if cell.can.takes_changes and cell.uuid not in seen]
        except FleetUnreachableError:
            pass  # other users of the fleet database report it
        else:
            seen.update(cell.uuid for cell in unseen if _has_seen(cell))
            if all(cell.uuid in seen for cell in unseen):
                return
        if stop.wait(_PAUSE_S):
            return


def _has_seen(cell: Cell) -> bool:
    try:
        engine = create_database_engine(cell.database_url, cell_uuid=cell.uuid, pool_size=1)
    except DatabaseUrlError:
        return True  # the part that works on this cell reports it
    try:
        with cell_failures(cell.name):
            _tell(f"cell {cell.name}", engine, newer_revision_of_cell)
    except CellUnreachableError:
        return False
    finally:
        engine.dispose()
    return True


def _tell(database: str, engine: Engine, newer_revision: Callable[[Engine], str | None]) -> None:
    revision = newer_revision(engine)
    if revision is not None:
        _log.warning("database.newer_tables", database=database, reason=str(NewerTablesError(revision)))
