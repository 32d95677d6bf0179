"""Jobs that a caller has seen end: the next list has what they did, though the index may not have it yet."""

from collections.abc import Sequence
from functools import partial

from sqlalchemy import Engine, select

from fleetlight.api.rapi.endpoint import RapiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.database.engines import cell_failures
from fleetlight.cells.job_numbers import number_in_cell
from fleetlight.cells.kinds.native.instance_rows import read_row
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.cells.tables import job_operations
from fleetlight.listing.consistency.read_your_writes import ReadYourWrites


class SeenJobs:
    """Notes the instances of jobs that a caller has seen end."""

    def __init__(self, access: FleetAccess, writes: ReadYourWrites) -> None:
        self._access = access
        self._writes = writes

    async def note(self, request: RapiRequest, number: int) -> None:
        """The job with this number has ended, and the caller is about to be told. Raises CellUnreachableError."""
        for cell in await self._access.ask(self._access.native.cells):
            job_id = number_in_cell(cell, number)
            if job_id is not None:
                engine = self._access.native.engine(cell)
                rows = await self._access.ask_cell(cell, partial(_instances_of, engine, cell, job_id))
                for row in rows:
                    await self._writes.include(row, request.caller.reader)


def _instances_of(engine: Engine, cell: Cell, job_id: int) -> Sequence[InstanceRow]:
    columns = job_operations.c
    wanted = select(columns.instance_uuid).where(columns.job_id == job_id, columns.instance_uuid.is_not(None))
    with cell_failures(cell.name), engine.connect() as connection:
        uuids = set(connection.scalars(wanted))
        rows = [read_row(connection, cell, uuid) for uuid in uuids]
    return [row for row in rows if row is not None]
