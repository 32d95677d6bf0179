"""The result of adding a cell of any kind to the fleet."""

from collections.abc import Iterator
from dataclasses import dataclass

from fleetlight.cells.model import Cell


@dataclass(frozen=True, slots=True)
class Joined:
    """A cell that is now in the fleet.

    before: the cell as it was, None if it is new. instances: their number, None if they were not counted. problem: why
        the cell cannot be read yet. notes: further remarks for the operator.
    """

    cell: Cell
    before: Cell | None
    instances: int | None = None
    problem: str | None = None
    notes: tuple[str, ...] = ()

    def changes(self) -> Iterator[tuple[str, str]]:
        """Yield the addresses that changed for a cell that existed: a title and the new address, which is a secret."""
        if self.before is None:
            return
        database = "address" if self.cell.kind.is_asked_over_http else "database"
        for what, before, now in (
            (database, self.before.database_url, self.cell.database_url),
            ("API database", self.before.api_database_url, self.cell.api_database_url),
            ("bus", self.before.transport_url, self.cell.transport_url),
        ):
            if now != before:
                yield what, now or "none"
