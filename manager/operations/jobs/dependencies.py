"""Jobs that wait for other jobs: they ask for no lock before those have ended, and so are in the way of none."""

from sqlalchemy import Connection, select, update

from fleetlight.cells.job_numbers import job_number
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import job_dependencies, jobs
from fleetlight.manager.operations.jobs.errors import DependencyError
from fleetlight.manager.operations.jobs.locks import wait_for_ends
from fleetlight.manager.operations.jobs.model import ENDED, Job, Stage
from fleetlight.manager.operations.jobs.queue import let_wait


def check_dependencies(connection: Connection, cell: Cell, job: Job) -> None:
    """Let a job go on, or wait until the next of those that it depends on ends. Raises DependencyError."""
    wait_for_ends(connection, job.id)
    columns = job_dependencies.c
    statement = (
        select(columns.depends_on, columns.statuses, jobs.c.status)
        .outerjoin_from(job_dependencies, jobs, jobs.c.id == columns.depends_on)
        .where(columns.job_id == job.id)
    )
    found = connection.execute(statement).all()
    for row in found:
        # None that came later than this one: two jobs could wait for each other, and one for itself, for ever.
        status = row.status if row.depends_on < job.id else None
        if status is None or (status in ENDED and status not in row.statuses):
            raise DependencyError(job_number(cell, row.depends_on), status)
    if all(row.status in ENDED for row in found):
        connection.execute(update(jobs).where(jobs.c.id == job.id).values(stage=Stage.REQUEST))
    else:
        let_wait(connection, job, Stage.DEPENDENCIES)
