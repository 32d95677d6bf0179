"""What became of a cell that was added to the fleet, of whatever kind."""

from collections.abc import Iterator
from dataclasses import dataclass

from fleetlight.cells.model import Cell


@dataclass(frozen=True, slots=True)
class Joined:
    """A cell that is in the fleet now.

    before: as it was; None of a new one. instances: how many it has; None where they were not counted. problem: why it
        cannot be read yet. notes: what else to know of it.
    """

    cell: Cell
    before: Cell | None
    instances: int | None = None
    problem: str | None = None
    notes: tuple[str, ...] = ()

    def changes(self) -> Iterator[tuple[str, str]]:
        """What of a cell that was there is another one now: what it is called, and the address. A secret."""
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
