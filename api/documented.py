"""Operations of the other faces, for the OpenAPI document."""

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
    """One method of one address. answer: the content of a success; None for no content. success: its status.

    is_open: whether it needs no token. body: the form of the body. query: the parameters that it reads.
    takes: headers that it reads. gives: headers of a success. media_type: of the answer.
    unwell: the status of the same answer when the service is not well.
    faults: statuses of faults in the form of the compute API, besides those of every request; None: faults have the
        form of the emulated service.
    events: by name, the data of each event, if it also answers with a stream of server-sent events.
    summary: its purpose in one line.
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
