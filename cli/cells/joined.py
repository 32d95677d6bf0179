"""What became of a cell that was added to the fleet, of whatever kind."""

from dataclasses import dataclass

from fleetlight.cells.model import Cell


@dataclass(frozen=True, slots=True)
class Joined:
    """A cell that is in the fleet now.

    instances: how many it has; None where they were not counted. problem: why it cannot be read yet. has_moved: its
        database is another one than before. bus_note: what to know of its bus.
    """

    cell: Cell
    is_new: bool
    instances: int | None = None
    problem: str | None = None
    has_moved: bool = False
    bus_note: str | None = None
