"""Requests are counted by route, and no name that a caller gives becomes one."""

import asyncio
from collections.abc import Sequence

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from fleetlight.api.http.request_metrics import RequestMetrics, name_route

Told = list[tuple[str, str, str]]


def told(*requests: tuple[str, str]) -> tuple[Told, Sequence[Told]]:
    """What is told of requests, each a method and a path, and what was of each by the time its stream went on."""
    seen: Told = []
    seen_by_then: list[Told] = []

    def observe(method: str, route: str, status: str, _project: str | None, _duration_s: float) -> None:
        seen.append((method, route, status))

    async def one(_request: Request) -> Response:
        return PlainTextResponse("here")

    async def table(request: Request) -> Response:
        if request.path_params["path"].startswith("servers/"):
            name_route(request.scope, "/servers/{server_id}")
            return PlainTextResponse("gone", 410)
        return PlainTextResponse("what?", 404)

    async def slow_reader(_request: Request) -> Response:
        async def parts() -> object:
            yield b"first"
            seen_by_then.append([*seen])
            yield b"last"

        return StreamingResponse(parts())  # type: ignore[arg-type]  # an iterator of bytes

    async def broken(_request: Request) -> Response:
        raise RuntimeError

    app = Starlette()
    app.router.redirect_slashes = False
    app.add_middleware(RequestMetrics, observe=observe)
    app.add_route("/healthz", one, methods=["GET"])
    app.add_route("/things/{name}", one, methods=["GET"])
    for base in ("/v2.1", "/v2"):
        app.add_route(f"{base}/{{path:path}}", table, methods=["GET", "DELETE"])
    app.add_route("/stream", slow_reader, methods=["GET"])
    app.add_route("/broken", broken, methods=["GET"])

    async def ask() -> None:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://fleet") as http:
            for method, path in requests:
                await http.request(method, path)

    asyncio.run(ask())
    return seen, seen_by_then


@pytest.mark.parametrize(
    ("method", "path", "counted"),
    [
        ("GET", "/healthz", ("GET", "/healthz", "200")),
        ("GET", "/things/mine", ("GET", "/things/{name}", "200")),
        ("DELETE", "/v2.1/servers/1", ("DELETE", "/v2.1/servers/{server_id}", "410")),
        ("GET", "/v2/servers/1", ("GET", "/v2/servers/{server_id}", "410")),
        ("GET", "/v2.1/anything/else", ("GET", "unknown", "404")),
        ("GET", "/nowhere", ("GET", "unknown", "404")),
        ("POST", "/healthz", ("POST", "/healthz", "405")),
        ("BREW", "/nowhere", ("unknown", "unknown", "404")),
        ("GET", "/broken", ("GET", "/broken", "none")),
    ],
)
def test_request_is_counted_once_by_its_route(method: str, path: str, counted: tuple[str, str, str]) -> None:
    seen, _ = told((method, path))
    assert seen == [counted]


def test_time_ends_when_the_answer_begins() -> None:
    seen, (seen_by_then,) = told(("GET", "/stream"))
    assert seen_by_then == seen == [("GET", "/stream", "200")]
