"""The findings of each cell's last comparison with the index (fleetlight.indexer.reconcile.audit)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from sqlalchemy import select

from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import audit_rounds


@dataclass(frozen=True, slots=True)
class AuditRound:
    """The last round of one cell. at: its end, in microseconds. compared: number of rows, by their revisions.

    found, repaired: numbers of differing instances, in this round and in contents read since.
    """

    at: int
    compared: int
    found: int = 0
    repaired: int = 0


class AuditRounds:
    """The last round of each cell. Calls raise FleetUnreachableError."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def record(self, cell_uuid: str, audit_round: AuditRound) -> None:
        """Store a round in place of the previous one."""
        values = asdict(audit_round)
        new = self._database.insert(audit_rounds)
        statement = new.on_conflict_do_update(index_elements=[audit_rounds.c.cell_uuid], set_=values)
        with self._database.writing_once() as connection:
            connection.execute(statement, {"cell_uuid": cell_uuid, **values})

    def all(self) -> Mapping[str, AuditRound]:
        """The rounds by cell uuid, without cells that were never compared."""
        with self._database.reading() as connection:
            rows = connection.execute(select(audit_rounds)).all()
        return {row.cell_uuid: AuditRound(*row[1:]) for row in rows}
