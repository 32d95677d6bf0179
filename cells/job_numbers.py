"""Numbers of jobs that are unique in the fleet: the number of the job in its cell, followed by that of the cell.

Job 17 of the cell with number 3 is job 170003. So the cell of a job follows from its number, cells need not agree on
the next number, and jobs of one cell are in the order in which it received them. Numbers stay below 2^53, as readers of
JSON need it, up to job 900,000,000,000 of a cell.
"""

from fleetlight.cells.model import Cell
from fleetlight.resources.units import MOST_EXACT

CELLS = 10_000
"""The most cells that a fleet may have had."""


def job_number(cell: Cell, number: int) -> int:
    """The number in the fleet of a job that has this number in its cell."""
    return number * CELLS + cell.number


def number_in_cell(cell: Cell, number: int) -> int | None:
    """The number in `cell` of the job that has this number in the fleet; None if it is a job of another cell."""
    in_cell, of_cell = divmod(number, CELLS)
    return in_cell if of_cell == cell.number and in_cell > 0 and number < MOST_EXACT else None
