"""Changes that a page of another site makes a browser ask for, which are refused."""

from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

_READS = {"GET", "HEAD", "OPTIONS"}
_OWN_SITE = {"same-origin", "none"}


class ForeignPages:
    """Refuses what changes something and comes from a page of another site.

    A browser sends such a request with the login that it remembers, or from a network that only it can reach. It says
    so in `Sec-Fetch-Site`, and in `Origin` where that is missing (https://www.w3.org/TR/fetch-metadata, and RFC 6454,
    7). Clients that are no browsers send neither.
    refusal: the answer to a request for a path.
    """

    def __init__(self, app: ASGIApp, refusal: Callable[[str], Response]) -> None:
        self._app = app
        self._refusal = refusal

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and scope["method"] not in _READS and _is_foreign(Headers(scope=scope)):
            return self._refusal(scope["path"])(scope, receive, send)
        return self._app(scope, receive, send)


def _is_foreign(headers: Headers) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in _OWN_SITE
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host")
