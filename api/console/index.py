"""`GET /fleetlight`: what there is besides the APIs of others, for programs and people."""

from collections.abc import Awaitable, Callable, Iterable
from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from fleetlight.api.documented import ApiOperation, DocumentedRoute
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.shapes import TEXT, ListOf, Shape

_ROOT = "/fleetlight"
INDEX = ApiOperation(
    "GET",
    _ROOT,
    Shape({"version": TEXT, "links": ListOf(Shape(dict.fromkeys(("rel", "href", "summary"), TEXT)))}),
    is_open=True,
    faults=(),
    summary="What there is here",
)
_OTHERS = (
    ("console", "/console/", "The console, for browsers"),
    ("compute", "/v2.1/", "The compute API"),
    ("openapi", "/openapi.json", "Every operation"),
)


def index_of(routes: Iterable[BaseRoute]) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint that shows what can be read of `routes` without naming one thing."""
    operations = [route.operation for route in routes if isinstance(route, DocumentedRoute)]
    links = [
        {"rel": each.path.removeprefix(f"{_ROOT}/"), "href": each.path, "summary": each.summary}
        for each in operations
        if each.method == "GET" and each.path.startswith(f"{_ROOT}/") and "{" not in each.path
    ]
    links += [{"rel": rel, "href": href, "summary": summary} for rel, href, summary in _OTHERS]

    async def show(_http: Request) -> Response:
        return json_answer({"version": version("fleetlight"), "links": links})

    return show
