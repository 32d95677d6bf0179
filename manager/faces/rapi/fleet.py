"""Changes of whole cells, and of jobs (contracts/ganeti-rapi, 4 and 7)."""

from collections.abc import Iterator
from functools import partial
from http import HTTPStatus

from starlette.responses import Response

from fleetlight.api.rapi.access import OPERATORS
from fleetlight.api.rapi.endpoint import JOB, RapiRequest, Resource, Verb, resource
from fleetlight.api.rapi.faults import RapiError
from fleetlight.api.rapi.items import answer
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.job_numbers import number_in_cell
from fleetlight.manager.faces.rapi.opcode_request import opcode_of
from fleetlight.manager.faces.rapi.submitting import Submitter
from fleetlight.manager.faces.rapi.target import Targets
from fleetlight.manager.operations.jobs.queue import cancel_job
from fleetlight.manager.operations.opcodes.cluster import ClusterSetParams, RedistributeConfiguration


class FleetChanges:
    """The resources of cells and jobs."""

    def __init__(self, access: FleetAccess, targets: Targets, submitter: Submitter) -> None:
        self._access = access
        self._targets = targets
        self._submitter = submitter

    def resources(self) -> Iterator[Resource]:
        yield resource("/redistribute-config", {"PUT": Verb(self._redistribute, OPERATORS)})
        yield resource("/modify", {"PUT": Verb(self._modify, OPERATORS)})
        yield resource(f"/jobs/(?P<job>{JOB})", {"DELETE": Verb(self._cancel, OPERATORS)})

    async def _redistribute(self, request: RapiRequest) -> Response:
        op = await opcode_of(request, RedistributeConfiguration, "redist_config", {}, takes_body=False)
        return await self._submitter.submit(request, await self._targets.only_cell(request, "a configuration"), op)

    async def _modify(self, request: RapiRequest) -> Response:
        if isinstance(request.body, dict) and "compression_tools" in request.body:
            raise RapiError(HTTPStatus.FORBIDDEN, "Parameter compression_tools is forbidden here")
        op = await opcode_of(request, ClusterSetParams, "modify", {}, needs_body=True)
        return await self._submitter.submit(request, await self._targets.only_cell(request, "parameters"), op)

    async def _cancel(self, request: RapiRequest) -> Response:
        """Cancel a job; answers with whether it was canceled, and a sentence."""
        number = int(request.names["job"])
        for cell in await self._targets.cells(request):
            if number_in_cell(cell, number) is not None:
                engine = self._access.native.engine(cell)
                return answer(await self._access.act(cell, partial(cancel_job, engine, cell, number)))
        return answer([False, f"Job {number} not found in queue"])
