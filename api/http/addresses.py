"""Normalization of addresses: text in UTF-8, without empty elements."""

import re
from collections.abc import Awaitable, Callable
from urllib.parse import unquote_to_bytes

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

_SLASHES = re.compile(b"/{2,}")


class Addresses:
    """Passes on requests whose address is UTF-8; answers all others with 404.

    Several slashes count as one, as for Nova and Keystone: clients join an endpoint that ends with a slash to a path
    that begins with one.
    The server replaces invalid bytes by U+FFFD, so without the check `/tags/%ff` would store a tag that no caller sent.
    refusal: makes the answer to a request with this method and path.
    """

    def __init__(self, app: ASGIApp, refusal: Callable[[str, str], Response]) -> None:
        self._app = app
        self._refusal = refusal

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            raw_path = scope.get("raw_path") or b""
            single = _SLASHES.sub(b"/", raw_path)
            try:
                path = unquote_to_bytes(single).decode()
            except UnicodeDecodeError:
                return self._refusal(scope["method"], scope["path"])(scope, receive, send)
            if single != raw_path:
                scope["raw_path"], scope["path"] = single, path
        return self._app(scope, receive, send)
