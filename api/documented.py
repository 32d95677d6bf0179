"""Operations of the faces beside the table of the compute API, as the OpenAPI document shows them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fleetlight.api.bodies.request_body import Body
from fleetlight.api.http.headers import Header
from fleetlight.api.http.shapes import JsonType

JSON = "application/json"

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """One method of one address. answer: what a success holds; None: nothing. success: its status.

    is_open: whether it needs no token. body: what is read of the request's body. query: parameters that mean something.
    takes: headers that it reads. gives: headers of a success. media_type: of the answer.
    unwell: the status under which the same is said when something is not as it should be.
    faults: statuses of faults in the form of the compute API, besides those that any request can get; None: faults have
        the form of the service that this belongs to.
    events: what the data of each event holds, by its name, if it can be had as a stream of server-sent events.
    summary: one line on what it is for.
    """

    method: str
    path: str
    answer: JsonType | None = None
    success: int = 200
    is_open: bool = False
    body: Body[Any] | None = None
    query: tuple[str, ...] = ()
    takes: tuple[Header, ...] = ()
    gives: tuple[Header, ...] = ()
    media_type: str = JSON
    unwell: int | None = None
    faults: tuple[int, ...] | None = None
    events: Mapping[str, JsonType] | None = None
    summary: str = ""


class DocumentedRoute(Route):
    """The route of an operation."""

    def __init__(self, operation: ApiOperation, endpoint: Endpoint) -> None:
        super().__init__(operation.path, endpoint, methods=[operation.method])
        self.operation = operation
