"""Canceling jobs. The request is noted in the row of the job; a worker ends it."""

from sqlalchemy import Engine, select, update

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.job_numbers import number_in_cell
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import job_operations, jobs
from fleetlight.operations.jobs.model import ENDED, Stage, Status


def cancel_job(engine: Engine, cell: Cell, number: int) -> tuple[bool, str]:
    """Cancel what has not begun of the job with a number in the fleet, and say whether there was something.

    An operation that is running goes on to its end. Raises CellUnreachableError.
    """
    job_id = number_in_cell(cell, number)
    if job_id is None:
        return False, f"Job {number} not found in queue"
    with cell_failures(cell.name), writing(engine) as connection:
        row = connection.execute(select(jobs).where(jobs.c.id == job_id).with_for_update()).one_or_none()
        if row is None or row.status in ENDED:
            return False, f"Job {number} not found in queue"
        is_running = row.stage == Stage.STEPS
        first = row.position + 1 if is_running else row.position
        if first == row.operation_count:
            return False, f"Job {number} is no longer waiting in the queue"
        canceling = {"status": Status.CANCELING}
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(**canceling, is_ready=True))
        columns = job_operations.c
        connection.execute(
            update(job_operations).where(columns.job_id == job_id, columns.position >= first).values(canceling)
        )
        return True, f"Job {number} will be canceled"
