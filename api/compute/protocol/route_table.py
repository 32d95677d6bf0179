"""The table of routes of the compute API, and the lookup of a handler by address.

Each resource lists its routes next to its handlers; `fleetlight.api.compute.resources` joins the lists. A request
without a route gets (contracts/nova-rest, section 0):

* 404 in plain text, if the address is unknown, or never had the method;
* 404 in JSON, if the method exists in another microversion;
* 410, if Nova has removed the resource for good (`gone`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from fleetlight.api.bodies.request_body import Body
from fleetlight.api.http.errors import GoneError, NoEventsError, NotInMicroversionError
from fleetlight.api.http.faults import no_such_address
from fleetlight.api.http.headers import Header
from fleetlight.api.http.query_string import NO_PARAMETERS, QueryParameters
from fleetlight.api.http.request_metrics import name_route
from fleetlight.api.http.shapes import JsonType
from fleetlight.api.shared.endpoint import NEWEST, ApiRequest, Handler, Middleware

_NEWEST_MINOR = NEWEST[1]


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One method of one address, for a span of microversions. Spans of the same method and address do not overlap.

    path: below the base, such as "/servers/{server_id}/tags"; handlers find the elements in braces in
        `request.http.path_params`.
    handler: called once the request has passed the middleware.
    since, until: the first and the last microversion, as the N of 2.N.
    body: the form of the body; None if the handler reads none.
    query: the known query parameters. For methods other than GET they are checked only if there are some.
    takes: headers that the handler reads. gives: headers of its successes. events: by name, the data of each event, if
        the route also answers with a stream of server-sent events.
    success: statuses of successes. errors: statuses of faults, besides those of every route (401, 406, 500 and the
        like). answer: the content of a success; None for no content.
    """

    method: str
    path: str
    handler: Handler
    since: int = 1
    until: int = _NEWEST_MINOR
    body: Body[Any] | None = None
    query: QueryParameters = NO_PARAMETERS
    success: tuple[int, ...] = (200,)
    errors: tuple[int, ...] = ()
    answer: JsonType | None = None
    takes: tuple[Header, ...] = ()
    gives: tuple[Header, ...] = ()
    events: Mapping[str, JsonType] | None = None

    def is_in(self, minor: int) -> bool:
        return self.since <= minor <= self.until

    @property
    def elements(self) -> tuple[str, ...]:
        return tuple(self.path.removeprefix("/").split("/"))


def gone(path: str, *methods: str) -> list[ApiRoute]:
    """Make routes that answer 410 for resources that Nova has removed at every microversion."""

    async def handler(request: ApiRequest) -> Response:
        raise GoneError(request.http.url.path)

    return [ApiRoute(method, path, handler, success=(), errors=(410,)) for method in methods]


@dataclass(slots=True)
class _Node:
    """The possible continuations after some elements of an address. A literal element wins over a parameter.

    names: by method, the indexes of the parameters among the elements, and their names.
    """

    children: dict[str, "_Node"] = field(default_factory=dict)
    parameter: "_Node | None" = None
    methods: dict[str, list[ApiRoute]] = field(default_factory=dict)
    names: dict[str, Sequence[tuple[int, str]]] = field(default_factory=dict)

    def add(self, route: ApiRoute) -> None:
        node = self
        for element in route.elements:
            if _is_parameter(element):
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.children.setdefault(element, _Node())
        spans = node.methods.setdefault(route.method, [])
        if any(route.since <= other.until and other.since <= route.until for other in spans):
            raise ValueError(f"two routes for {route.method} {route.path} in the same microversion")
        spans.append(route)
        # All spans have their parameters at the same places, so the names of the first serve for all.
        names = [(at, name[1:-1]) for at, name in enumerate(route.elements) if _is_parameter(name)]
        node.names.setdefault(route.method, names)

    def find(self, elements: Sequence[str]) -> "_Node | None":
        if not elements:
            return self if self.methods else None
        child = self.children.get(elements[0])
        found = None if child is None else child.find(elements[1:])
        if found is None and self.parameter is not None and elements[0]:
            found = self.parameter.find(elements[1:])
        return found


class RouteTable:
    """Finds the route of a request below a base address, with or without the element of the project.

    The cost of a lookup does not depend on the number of routes.
    """

    def __init__(self, routes: Iterable[ApiRoute], middleware: Middleware) -> None:
        self.routes = tuple(routes)
        self._middleware = middleware
        self._root = _Node()
        for route in self.routes:
            self._root.add(route)

    async def answer(self, http: Request) -> Response:
        """The endpoint of `{base}/{path:path}`. Finds the route for `path`, and answers by it."""
        path: str = http.path_params["path"]
        if "\0" in path:  # no stored name can contain it
            return no_such_address()
        elements = path.split("/")
        node, project = self._root.find(elements), dict[str, str]()
        if node is None and elements[0]:
            node, project = self._root.find(elements[1:]), {"project_id": elements[0]}
            elements = elements[1:]
        method = "GET" if http.method == "HEAD" else http.method
        if node is None or method not in node.methods:
            return no_such_address()
        spans = node.methods[method]

        async def respond(minor: int) -> Response:
            request = await self._middleware.request(http, minor)
            route = next((route for route in spans if route.is_in(minor)), None)
            if route is None:
                raise NotInMicroversionError(minor)
            if request.wants_events and route.events is None:
                raise NoEventsError
            if route.method == "GET" or route.query is not NO_PARAMETERS:
                route.query.accept(request.query, minor)
            return await route.handler(request)

        name_route(http.scope, spans[0].path)
        http.scope["path_params"] = project | {name: elements[at] for at, name in node.names[method]}
        return await self._middleware.answer(http, respond)


def _is_parameter(element: str) -> bool:
    return element.startswith("{")
