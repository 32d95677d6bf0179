"""The span of a request, made where requests are counted."""

import asyncio
from functools import partial

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from fleetlight.api.http.request_metrics import RequestMetrics, name_project, trace_request
from tests.support.traced import RecordedTraces, times

REQUEST = "req-46f4d8ac-e61c-452d-926b-b508626a50af"


def spans_of(path: str, headers: dict[str, str] | None = None) -> list[ReadableSpan]:
    recorded = RecordedTraces()

    async def answer(request: Request) -> Response:
        request.state.request_id = REQUEST
        name_project(request.scope, "alpha")
        if request.path_params["id"] == "broken":
            raise RuntimeError
        answered = {"Fleetlight-Route": "index", "Fleetlight-Complete": "true", "Set-Cookie": "secret"}
        return PlainTextResponse("here", int(request.path_params["id"]), answered)

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok")

    app = Starlette()
    trace = partial(trace_request, recorded.traces)
    app.add_middleware(RequestMetrics, observe=lambda *_: None, trace=trace)
    app.add_route("/servers/{id}", answer)
    app.add_route("/healthz", healthz)

    async def ask() -> None:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://fleet") as http:
            await http.get(path, headers=headers)

    asyncio.run(ask())
    return recorded.spans


def test_span_says_route_project_and_what_the_list_covers_and_nothing_secret() -> None:
    headers = {"X-Auth-Token": "secret", "Fleetlight-Consistency": "any"}
    [span] = spans_of("/servers/200?name=secret", headers)
    assert (span.name, span.kind, span.status.status_code) == ("GET /servers/{id}", SpanKind.SERVER, StatusCode.UNSET)
    assert span.attributes == {
        "http.request.method": "GET",
        "http.route": "/servers/{id}",
        "http.response.status_code": 200,
        "fleetlight.request_id": REQUEST,
        "fleetlight.project_id": "alpha",
        "fleetlight.consistency": "any",
        "fleetlight.route": "index",
        "fleetlight.complete": "true",
    }
    began, ended = times(span)
    assert 0 <= ended - began < 10_000_000


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/servers/404", 404, StatusCode.UNSET),
        ("/servers/503", 503, StatusCode.ERROR),
        ("/servers/broken", None, StatusCode.ERROR),
    ],
)
def test_failure_of_the_server_is_one_of_the_span(path: str, status: int | None, code: StatusCode) -> None:
    [span] = spans_of(path, {"Fleetlight-Consistency": "any text of a caller"})
    assert span.attributes is not None
    assert (span.attributes.get("http.response.status_code"), span.status.status_code) == (status, code)
    assert "fleetlight.consistency" not in span.attributes


def test_span_is_linked_to_that_of_the_caller() -> None:
    [span] = spans_of("/servers/200", {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
    assert [link.context.span_id for link in span.links] == [0xB7AD6B7169203331]


def test_probe_has_no_trace() -> None:
    assert spans_of("/healthz") == []
