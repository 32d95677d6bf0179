"""Counts, times and traces of requests by route, which is the registered address without callers' names."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleetlight.api.http.methods import METHODS

if TYPE_CHECKING:
    from fleetlight.bus.traces import Traces

UNKNOWN = "unknown"
"""The route of a request without a route, and the method of a request whose method no route has."""
_BELOW = "fleetlight.route_below"
_PROJECT = "fleetlight.project"
_OF_REQUEST = {"Fleetlight-Consistency": "fleetlight.consistency"}
_OF_ANSWER = {
    "Fleetlight-Complete": "fleetlight.complete",
    "Fleetlight-Route": "fleetlight.route",
    "Fleetlight-Token": "fleetlight.token",
}
# The longest header of tokens.
_LONGEST_VALUE = 3000

Observe = Callable[[str, str, str, str | None, float], None]
"""Takes method, route, status, project and seconds of a request. The status is `none` without an answer; the project
is "" for a caller without one, and None without a caller."""


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A request at its end, with the values of Observe. start: the first message of the answer; None without answer."""

    scope: Scope
    start: Message | None
    method: str
    route: str
    project: str | None
    duration_s: float


def name_route(scope: Scope, path: str) -> None:
    """Record the route of a request whose endpoint answers everything below an address.

    path: the route below that address, such as "/servers/{server_id}".
    """
    scope[_BELOW] = path


def name_project(scope: Scope, project_id: str | None) -> None:
    """Record the project of a request's caller."""
    scope[_PROJECT] = project_id or ""


def route_found(scope: Scope) -> Mapping[str, Any]:
    """Return the route and project recorded in a scope, to copy them into the scope of an equal request."""
    return {key: scope[key] for key in ("endpoint", _BELOW, _PROJECT) if key in scope}


class RequestMetrics:
    """Passes on requests, and reports each when its answer begins.

    So neither a slow client nor a stream of events counts as time of an answer. trace: None: trace no request.
    """

    def __init__(self, app: ASGIApp, observe: Observe, trace: Callable[[AnsweredRequest], None] | None = None) -> None:
        self._app = app
        self._observe = observe
        self._trace = trace
        self._paths: dict[Any, list[str]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        has_answered = False

        def tell(start: Message | None) -> None:
            method = scope["method"] if scope["method"] in METHODS else UNKNOWN
            status = "none" if start is None else str(start["status"])
            route, project, duration_s = self._route(scope), scope.get(_PROJECT), time.perf_counter() - started
            self._observe(method, route, status, project, duration_s)
            if self._trace is not None:
                self._trace(AnsweredRequest(scope, start, method, route, project, duration_s))

        async def send_and_look(message: Message) -> None:
            nonlocal has_answered
            if message["type"] == "http.response.start":
                has_answered = True
                tell(message)
            await send(message)

        try:
            await self._app(scope, receive, send_and_look)
        finally:
            if not has_answered:
                tell(None)

    def _route(self, scope: Scope) -> str:
        # A router records the endpoint in the scope, but not the route.
        if self._paths is None:
            self._paths = _paths_by_endpoint(scope["app"].routes)
        known = self._paths.get(scope.get("endpoint"), [])
        path = next((each for each in known if scope["path"].startswith(each.partition("{")[0])), UNKNOWN)
        above, is_table, _ = path.partition("{path:path}")
        if not is_table:
            return path
        return f"{above.rstrip('/')}{scope[_BELOW]}" if _BELOW in scope else UNKNOWN


def _paths_by_endpoint(routes: Iterable[BaseRoute]) -> dict[Any, list[str]]:
    """Return the paths of each endpoint, the longest first."""
    paths: dict[Any, list[str]] = {}
    for route in routes:
        if isinstance(route, Route):
            paths.setdefault(route.endpoint, []).append(route.path)
    return {endpoint: sorted(each, key=len, reverse=True) for endpoint, each in paths.items()}


def trace_request(traces: "Traces", request: AnsweredRequest) -> None:
    """Record the span of a request that has a request id and is sampled.

    The span has the route, and the completeness and route headers of the answer; no names of users.
    """
    scope, start = request.scope, request.start
    request_id = scope.get("state", {}).get("request_id")
    trace_id = traces.trace_of(request_id)
    if trace_id is None:
        return
    now = time.time_ns() // 1000
    status = 0 if start is None else start["status"]
    asked = Headers(scope=scope)
    answered = Headers(raw=[] if start is None else start["headers"])
    attributes: dict[str, str | int | bool] = {
        "http.request.method": request.method,
        "http.route": request.route,
        "fleetlight.request_id": request_id,
        **({"http.response.status_code": status} if status else {}),
        **({"fleetlight.project_id": request.project} if request.project else {}),
        # Only of successes, since the value in a refused request could be any text.
        **(_values(asked, _OF_REQUEST) if 0 < status < 400 else {}),
        **_values(answered, _OF_ANSWER),
    }
    traces.answered(
        trace_id,
        request.method if request.route == UNKNOWN else f"{request.method} {request.route}",
        now - round(request.duration_s * 1_000_000),
        now,
        attributes,
        has_failed=not 0 < status < 500,
        caller=asked.get("traceparent"),
    )


def _values(headers: Headers, names: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[header][:_LONGEST_VALUE] for header, name in names.items() if header in headers}
