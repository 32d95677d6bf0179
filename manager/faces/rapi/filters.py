"""Changes of job filters (contracts/ganeti-rapi, 10), made at once, without a job."""

import time
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Connection, select
from starlette.responses import Response

from fleetlight.api.http.errors import NotFoundError
from fleetlight.api.rapi.access import OPERATORS
from fleetlight.api.rapi.endpoint import NAME, RapiRequest, Resource, Verb, resource
from fleetlight.api.rapi.faults import RapiError
from fleetlight.api.rapi.items import answer
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import job_filters
from fleetlight.manager.faces.rapi.opcode_request import check_texts, in_words
from fleetlight.manager.faces.rapi.target import Targets
from fleetlight.manager.operations.opcodes.filters.predicates import PredicateError, check_predicate
from fleetlight.manager.operations.opcodes.filters.storing import JobFilters, NewFilter
from fleetlight.resources.uuids import is_uuid

_ONE = f"/filters/(?P<filter>{NAME})"
_RESOURCE = "gnt:library:rlib2:filters"


class _FilterBody(BaseModel):
    """A filter. predicates: a name and an expression each. reason: source, text and nanoseconds each."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    priority: Annotated[int, Field(ge=0, lt=2**31, strict=True)] = 0
    predicates: list[tuple[str, Any]] = Field(default_factory=list)
    action: (
        Literal["CONTINUE", "ACCEPT", "PAUSE", "REJECT"]
        | tuple[Literal["RATE_LIMIT"], Annotated[int, Field(ge=1, lt=2**31, strict=True)]]
    ) = "CONTINUE"
    reason: list[tuple[str, str, Annotated[int, Field(strict=True)]]] = Field(default_factory=list)


class FilterChanges:
    """The resources of filters."""

    def __init__(self, access: FleetAccess, targets: Targets) -> None:
        self._access = access
        self._targets = targets

    def resources(self) -> Iterator[Resource]:
        yield resource("/filters", {"POST": Verb(self._add, OPERATORS)})
        yield resource(_ONE, {"PUT": Verb(self._replace, OPERATORS), "DELETE": Verb(self._remove, OPERATORS)})

    async def _add(self, request: RapiRequest) -> Response:
        new = _filter_of(request)
        return await self._save(await self._targets.only_cell(request, "filters"), new, None)

    async def _replace(self, request: RapiRequest) -> Response:
        """Replace a filter, or make it."""
        new, uuid = _filter_of(request), request.names["filter"]
        if not is_uuid(uuid):
            raise RapiError(HTTPStatus.BAD_REQUEST, f"'{uuid}' is no uuid")
        cell = await self._cell_of(request, uuid)
        return await self._save(cell or await self._targets.only_cell(request, "filters"), new, uuid)

    async def _remove(self, request: RapiRequest) -> Response:
        uuid = request.names["filter"]
        cell = await self._cell_of(request, uuid)
        if cell is None or not await self._access.act(cell, lambda: self._filters(cell).remove(uuid)):
            raise NotFoundError(f"There is no filter '{uuid}'")
        return answer(None)

    async def _save(self, cell: Cell, new: NewFilter, uuid: str | None) -> Response:
        return answer(await self._access.act(cell, lambda: self._filters(cell).add(new, uuid)))

    async def _cell_of(self, request: RapiRequest, uuid: str) -> Cell | None:
        def find(connection: Connection) -> Sequence[Any]:
            return connection.execute(select(job_filters.c.id).where(job_filters.c.uuid == uuid)).all()

        return await self._targets.cell_with(request, find)

    def _filters(self, cell: Cell) -> JobFilters:
        return JobFilters(self._access.native.engine(cell), cell)


def _filter_of(request: RapiRequest) -> NewFilter:
    """Parse a filter. Raises RapiError for a malformed one."""
    try:
        check_texts(request.body)
        body = _FilterBody.model_validate({} if request.body is None else request.body)
        for name, expression in body.predicates:
            check_predicate(name, expression)
    except ValidationError as error:
        raise RapiError(HTTPStatus.BAD_REQUEST, f"Invalid body parameters: {in_words(error)}") from None
    except PredicateError as error:
        raise RapiError(HTTPStatus.BAD_REQUEST, f"Invalid body parameters: predicates: {error}") from None
    trail = [*body.reason, (_RESOURCE, "", time.time_ns())]
    return NewFilter(body.priority, body.predicates, body.action, trail)
