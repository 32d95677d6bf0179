"""Results of the comparisons of mappings with the rows of each cell (fleetlight.cells.fleet.adoption)."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import func, select

from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import compared_mappings


@dataclass(frozen=True, slots=True)
class ComparedMappings:
    """The results for one cell; moments are microseconds since the epoch.

    compared_at: end of the last comparison. repaired: number of mappings that all comparisons repaired. repaired_at:
    end of the last comparison that repaired any. elsewhere: number of rows whose mapping names another cell.
    """

    compared_at: int
    repaired: int
    repaired_at: int | None
    elsewhere: int


class ComparedMappingsStore:
    """The results of all cells. Calls raise FleetUnreachableError."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def record(self, cell_uuid: str, *, compared_at: int, repaired: int, elsewhere: int) -> None:
        """Add the result of a comparison. repaired: by this comparison alone."""
        values = {
            "cell_uuid": cell_uuid,
            "compared_at": compared_at,
            "repaired": repaired,
            "repaired_at": compared_at if repaired else None,
            "elsewhere": elsewhere,
        }
        new, known = self._database.insert(compared_mappings), compared_mappings.c
        statement = new.on_conflict_do_update(
            index_elements=[known.cell_uuid],
            set_={
                "compared_at": new.excluded.compared_at,
                "repaired": known.repaired + new.excluded.repaired,
                "repaired_at": func.coalesce(new.excluded.repaired_at, known.repaired_at),
                "elsewhere": new.excluded.elsewhere,
            },
        )
        with self._database.writing_once() as connection:
            connection.execute(statement, values)

    def of(self, cell_uuid: str) -> ComparedMappings | None:
        """The results of one cell; None if it was never compared."""
        statement = select(compared_mappings).where(compared_mappings.c.cell_uuid == cell_uuid)
        with self._database.reading() as connection:
            row = connection.execute(statement).one_or_none()
        return None if row is None else ComparedMappings(*row[1:])

    def all(self) -> Mapping[str, ComparedMappings]:
        """The results by cell uuid, without cells that were never compared."""
        with self._database.reading() as connection:
            rows = connection.execute(select(compared_mappings)).all()
        return {row.cell_uuid: ComparedMappings(*row[1:]) for row in rows}
