"""Waiting for jobs. Once a caller has seen a job end, its next list includes its changes, even before the index."""

from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from sqlalchemy import Engine, select
from starlette.responses import Response

from fleetlight.api.query.job_changes import WATCHED, JobLostError, next_change
from fleetlight.api.query.scope import visible_fields
from fleetlight.api.rapi.endpoint import RapiRequest
from fleetlight.api.rapi.faults import RapiError
from fleetlight.api.rapi.items import RapiItems, answer, not_found
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.database.engines import cell_failures
from fleetlight.cells.job_numbers import number_in_cell
from fleetlight.cells.job_words import ENDED
from fleetlight.cells.kinds.native.instance_rows import read_row
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.cells.tables import job_operations
from fleetlight.listing.consistency.read_your_writes import ReadYourWrites

LONGEST_S = 10.0


class SeenJobs:
    """Notes the instances of jobs that a caller has seen end."""

    def __init__(self, access: FleetAccess, writes: ReadYourWrites) -> None:
        self._access = access
        self._writes = writes

    async def note(self, request: RapiRequest, number: int) -> None:
        """Note the changes of an ended job before the caller is told. Raises CellUnreachableError."""
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


class _WaitBody(BaseModel):
    """The caller's last look. previous_job_info: values of the fields. previous_log_serial: last entry of the log."""

    model_config = ConfigDict(strict=True, frozen=True)

    fields: list[str]
    previous_job_info: list[Any] | None = None
    previous_log_serial: int | None = None


async def wait_for_job(items: RapiItems, seen: SeenJobs, request: RapiRequest) -> Response:
    """`/2/jobs/J/wait`: wait for a change of a job since its caller's last look.

    Answers with null if nothing has changed for `LONGEST_S`, and at once if the job has ended. Raises RapiError.
    """
    body = _parsed(request.body)
    names = [*WATCHED, *body.fields]
    known = visible_fields("job", request.caller)
    unknown = [name for name in body.fields if name not in known]
    if unknown:
        raise RapiError(HTTPStatus.BAD_REQUEST, f"Unknown output fields selected: {', '.join(unknown)}")
    headers: dict[str, str] = {}

    async def look() -> Sequence[Any] | None:
        nonlocal headers
        rows, headers = await items.collected(request, "job", names, ["==", "id", int(request.names["job"])])
        return [value for _, value in rows[0]] if rows else None

    try:
        change = await next_change(look, body.previous_job_info, body.previous_log_serial, longest_s=LONGEST_S)
    except JobLostError:
        raise not_found(f"There is no job {request.names['job']}", headers) from None
    if change is None:
        return answer(None, headers)
    if change.status in ENDED:
        await seen.note(request, int(request.names["job"]))
    return answer({"job_info": change.info, "log_entries": change.entries}, headers)


def _parsed(body: Any) -> _WaitBody:
    if not isinstance(body, dict):
        raise RapiError(HTTPStatus.BAD_REQUEST, "The body must be an object with 'fields'")
    try:
        return _WaitBody.model_validate(body)
    except ValidationError as error:
        wrong: Mapping[str, Any] = dict(error.errors(include_url=False, include_context=False, include_input=False)[0])
        place = ".".join(map(str, wrong["loc"]))
        raise RapiError(HTTPStatus.BAD_REQUEST, f"Invalid body parameters: {place}: {wrong['msg']}") from None
