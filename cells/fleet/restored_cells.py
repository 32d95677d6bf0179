"""Cells whose databases were restored from a backup, until an operator acknowledges it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from sqlalchemy import delete, select

from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import restored_cells


@dataclass(frozen=True, slots=True)
class RestoredCell:
    """A restore. at: when an indexer noticed it, in microseconds. watermark: the last change that the index had
    followed. last_sequence: the last change in the cell then.
    """

    at: int
    watermark: int
    last_sequence: int

    @property
    def evidence(self) -> str:
        """A sentence that describes the restore."""
        return (
            f"the index had followed it to change {self.watermark}, its log ended at {self.last_sequence} with another "
            "past: its database went back to a backup, and what came after that is lost"
        )


def acknowledged_by(cell_name: str) -> str:
    """The remedy for a restored cell, for operators."""
    return f"restore a newer one, or `fleetlight cell acknowledge {cell_name}` if it was meant"


class RestoredCells:
    """All restores that are not acknowledged. Calls raise FleetUnreachableError."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def record(self, cell_uuid: str, restored: RestoredCell) -> None:
        """Record a restore, unless an earlier one is not acknowledged: that one lost most changes."""
        new = self._database.insert(restored_cells).on_conflict_do_nothing()
        with self._database.writing_once() as connection:
            connection.execute(new, {"cell_uuid": cell_uuid, **asdict(restored)})

    def all(self) -> Mapping[str, RestoredCell]:
        """The restores by cell uuid."""
        with self._database.reading() as connection:
            rows = connection.execute(select(restored_cells)).all()
        return {row.cell_uuid: RestoredCell(*row[1:]) for row in rows}

    def acknowledge(self, cell_uuid: str) -> bool:
        """Acknowledge the restore of a cell; False if it has none."""
        with self._database.writing_once() as connection:
            gone = connection.execute(delete(restored_cells).where(restored_cells.c.cell_uuid == cell_uuid))
        return gone.rowcount > 0
