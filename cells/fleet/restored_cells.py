"""Cells whose databases went back to a backup, until an operator has said that this was meant."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from sqlalchemy import delete, select

from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import restored_cells


@dataclass(frozen=True, slots=True)
class RestoredCell:
    """at: when an indexer found it; microseconds. watermark: up to which change the index had followed the cell.

    last_sequence: the last change that the cell knew of then.
    """

    at: int
    watermark: int
    last_sequence: int

    @property
    def evidence(self) -> str:
        """What was found, as a sentence."""
        return (
            f"the index had followed it to change {self.watermark}, its log ended at {self.last_sequence} with another "
            "past: its database went back to a backup, and what came after that is lost"
        )


def acknowledged_by(cell_name: str) -> str:
    """What an operator does about a restored cell."""
    return f"restore a newer one, or `fleetlight cell acknowledge {cell_name}` if it was meant"


class RestoredCells:
    """Calls raise FleetUnreachableError."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def record(self, cell_uuid: str, restored: RestoredCell) -> None:
        """The first one that was not acknowledged stays: it has lost most."""
        new = self._database.insert(restored_cells).on_conflict_do_nothing()
        with self._database.writing_once() as connection:
            connection.execute(new, {"cell_uuid": cell_uuid, **asdict(restored)})

    def all(self) -> Mapping[str, RestoredCell]:
        """By the uuid of the cell, those that nobody has acknowledged."""
        with self._database.reading() as connection:
            rows = connection.execute(select(restored_cells)).all()
        return {row.cell_uuid: RestoredCell(*row[1:]) for row in rows}

    def acknowledge(self, cell_uuid: str) -> bool:
        """Whether there was anything to acknowledge."""
        with self._database.writing_once() as connection:
            gone = connection.execute(delete(restored_cells).where(restored_cells.c.cell_uuid == cell_uuid))
        return gone.rowcount > 0
