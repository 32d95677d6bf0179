"""The face of browsers: the console, its login, and the index of the API."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fleetlight.api.console.assets import ConsoleAssets
from fleetlight.api.console.openid import BEGIN, END, FINISH, OpenIdHandlers
from fleetlight.api.console.session import LOG_IN, LOG_OUT, SHOW, SessionHandlers
from fleetlight.api.documented import ApiOperation, DocumentedRoute
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.shapes import TEXT, ListOf, Shape
from fleetlight.api.identity.openid.strategy import OpenIdIdentity
from fleetlight.api.services import Services

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
    """Make the endpoint that lists the addresses of `routes` that can be read without naming an item."""
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


def routes(services: Services, others: Sequence[BaseRoute]) -> Sequence[Route]:
    """Make the routes of browsers. others: routes of other faces, for the index."""
    parts = services.parts
    sessions = SessionHandlers(parts.identity, services.middleware, parts.api.compute_link_prefix)
    documented = [
        DocumentedRoute(SHOW, sessions.show),
        DocumentedRoute(LOG_IN, sessions.log_in),
        DocumentedRoute(LOG_OUT, sessions.log_out),
    ]
    if isinstance(parts.identity, OpenIdIdentity):
        openid = OpenIdHandlers(parts.identity, services.middleware, f"{parts.api.compute_link_prefix}")
        documented += [
            DocumentedRoute(BEGIN, openid.begin),
            DocumentedRoute(FINISH, openid.finish),
            DocumentedRoute(END, openid.end),
        ]
    index = DocumentedRoute(INDEX, index_of([*others, *documented]))
    return [index, *documented, *ConsoleAssets().routes()]


def prefers_a_page(http: Request) -> bool:
    """Whether a browser wants a page: the request accepts HTML before all else."""
    return http.headers.get("accept", "").partition(",")[0].partition(";")[0].strip().lower() == "text/html"
