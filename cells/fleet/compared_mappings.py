"""Results of the comparisons of mappings with the rows of each cell (fleetlight.cells.fleet.adoption)."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import func, select

from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import compared_mappings


@dataclass(frozen=True, slots=True)
class ComparedMappings:
    """Of one cell; moments are microseconds since the epoch.

    compared_at: when a comparison ended last. repaired: how many mappings all of them have repaired. repaired_at: when
    the last one that did so ended. elsewhere: rows of the cell whose mapping names another cell.
    """

    compared_at: int
    repaired: int
    repaired_at: int | None
    elsewhere: int


class ComparedMappingsStore:
    """Calls raise FleetUnreachableError."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def record(self, cell_uuid: str, *, compared_at: int, repaired: int, elsewhere: int) -> None:
        """A comparison has ended. repaired: by it alone."""
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
        """None of a cell that was never compared."""
        statement = select(compared_mappings).where(compared_mappings.c.cell_uuid == cell_uuid)
        with self._database.reading() as connection:
            row = connection.execute(statement).one_or_none()
        return None if row is None else ComparedMappings(*row[1:])

    def all(self) -> Mapping[str, ComparedMappings]:
        """By the uuid of the cell; without cells that were never compared."""
        with self._database.reading() as connection:
            rows = connection.execute(select(compared_mappings)).all()
        return {row.cell_uuid: ComparedMappings(*row[1:]) for row in rows}
