"""Submission of a request's operations as a job."""

from collections.abc import Sequence
from http import HTTPStatus

import structlog
from starlette.responses import Response

from fleetlight.api.rapi.endpoint import RapiRequest
from fleetlight.api.rapi.faults import RapiError
from fleetlight.api.rapi.items import answer
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.model import Cell, RequestContext
from fleetlight.manager.operations.opcodes.opcode import OpCode, OtherCellError
from fleetlight.manager.operations.submitting import JobSubmission


class Submitter:
    """Submits jobs to native cells."""

    def __init__(self, access: FleetAccess) -> None:
        self._access = access

    async def submit(self, request: RapiRequest, cell: Cell, *opcodes: OpCode) -> Response:
        """Submit a job, and answer with its number. Raises RapiError, CellUnreachableError."""
        return answer(await self.number_of(request, cell, opcodes))

    async def number_of(self, request: RapiRequest, cell: Cell, opcodes: Sequence[OpCode]) -> int:
        """Submit a job, and return its number. Raises RapiError, CellUnreachableError."""
        submission = JobSubmission(self._access.native.engine(cell), cell)
        asked_by = request_of(request)
        try:
            return await self._access.act(cell, lambda: submission.submit(opcodes, asked_by))
        except OtherCellError as error:
            raise RapiError(HTTPStatus.BAD_REQUEST, str(error)) from error


def request_of(request: RapiRequest) -> RequestContext:
    """Return the context of a request, which names the caller in jobs and notifications."""
    request_id = structlog.contextvars.get_contextvars().get("request_id")
    return RequestContext(request_id, request.caller.user_id or None, request.caller.project_id)
