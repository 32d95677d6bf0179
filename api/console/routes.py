"""The face of browsers: the console, its login, and the index of what there is."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from fleetlight.api.console.assets import ConsoleAssets
from fleetlight.api.console.index import INDEX, index_of
from fleetlight.api.console.openid import BEGIN, END, FINISH, OpenIdHandlers
from fleetlight.api.console.session import LOG_IN, LOG_OUT, SHOW, SessionHandlers
from fleetlight.api.documented import DocumentedRoute
from fleetlight.api.identity.openid.strategy import OpenIdIdentity
from fleetlight.api.services import Services


def routes(services: Services, others: Sequence[BaseRoute]) -> Sequence[Route]:
    """others: routes of other faces, for the index."""
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
    """Whether a request is that of a browser for something to show: it names HTML before all else."""
    return http.headers.get("accept", "").partition(",")[0].partition(";")[0].strip().lower() == "text/html"


def to_console(_http: Request) -> Response:
    return RedirectResponse("/console/", 302, {"Vary": "Accept"})
