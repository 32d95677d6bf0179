"""Numbers of jobs, which are unique in the fleet: that of the job in its cell, and behind it that of the cell.

Job 17 of the cell with number 3 is job 170003, so the cell of a job follows from its number, no two cells have to agree
on the next one, and jobs of one cell are in the order in which it received them. All of it stays below 2^53, as readers
of JSON need it, up to job 900,000,000,000 of a cell.
"""

from fleetlight.cells.model import Cell
from fleetlight.resources.units import MOST_EXACT

CELLS = 10_000
"""So many cells a fleet may have had."""


def job_number(cell: Cell, number: int) -> int:
    """The number in the fleet of a job that has this number in its cell."""
    return number * CELLS + cell.number


def number_in_cell(cell: Cell, number: int) -> int | None:
    """The number in `cell` of a job that has this number in the fleet; None of a job of another cell."""
    in_cell, of_cell = divmod(number, CELLS)
    return in_cell if of_cell == cell.number and in_cell > 0 and number < MOST_EXACT else None
