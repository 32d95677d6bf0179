"""Each request counted, timed and traced by its route: an address as it is registered, without names of callers."""

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
"""The route of a request that finds none, and the method of one whose method no route has."""
_BELOW = "fleetlight.route_below"
_PROJECT = "fleetlight.project"
_OF_REQUEST = {"Fleetlight-Consistency": "fleetlight.consistency"}
_OF_ANSWER = {
    "Fleetlight-Complete": "fleetlight.complete",
    "Fleetlight-Route": "fleetlight.route",
    "Fleetlight-Token": "fleetlight.token",
}
# As long as the tokens may be that a list is asked to include.
_LONGEST_VALUE = 3000

Observe = Callable[[str, str, str, str | None, float], None]
"""Takes method, route, status, project and seconds of a request. The status is `none` if it got no answer, the project
"" if its caller has none, and None if no caller is known."""


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """The values are those of Observe. start: the message that begins the answer; None if there was none."""

    scope: Scope
    start: Message | None
    method: str
    route: str
    project: str | None
    duration_s: float


def name_route(scope: Scope, path: str) -> None:
    """Say by which of its own routes an endpoint answers that everything below an address goes to.

    path: below that address, such as "/servers/{server_id}".
    """
    scope[_BELOW] = path


def name_project(scope: Scope, project_id: str | None) -> None:
    """Say which project the caller of a request has."""
    scope[_PROJECT] = project_id or ""


def route_found(scope: Scope) -> Mapping[str, Any]:
    """What a scope says of the route and the project that were found, for that of another such request."""
    return {key: scope[key] for key in ("endpoint", _BELOW, _PROJECT) if key in scope}


class RequestMetrics:
    """Passes on requests, and tells of each when its answer begins.

    Neither a client that reads slowly nor a stream of events counts as time that an answer took. trace: None: no
    request is traced.
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
        # A router leaves in the scope which endpoint it has found, and not by which route.
        if self._paths is None:
            self._paths = _paths_by_endpoint(scope["app"].routes)
        known = self._paths.get(scope.get("endpoint"), [])
        path = next((each for each in known if scope["path"].startswith(each.partition("{")[0])), UNKNOWN)
        above, is_table, _ = path.partition("{path:path}")
        if not is_table:
            return path
        return f"{above.rstrip('/')}{scope[_BELOW]}" if _BELOW in scope else UNKNOWN


def _paths_by_endpoint(routes: Iterable[BaseRoute]) -> dict[Any, list[str]]:
    """Where each endpoint is registered, the longest path first."""
    paths: dict[Any, list[str]] = {}
    for route in routes:
        if isinstance(route, Route):
            paths.setdefault(route.endpoint, []).append(route.path)
    return {endpoint: sorted(each, key=len, reverse=True) for endpoint, each in paths.items()}


def trace_request(traces: "Traces", request: AnsweredRequest) -> None:
    """Record the span of a request that has a request id and is sampled.

    It says what the request was by its route, and what its answer says of the list; no names of users.
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
        # A wrong value could be any text.
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
