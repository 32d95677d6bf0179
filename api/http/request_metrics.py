"""Each request counted and timed by its route: an address as it is registered, without the names that callers give."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleetlight.api.http.methods import METHODS

UNKNOWN = "unknown"
"""The route of a request that finds none, and the method of one whose method no route has."""
_BELOW = "fleetlight.route_below"
_PROJECT = "fleetlight.project"

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
