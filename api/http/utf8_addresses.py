"""Refusing addresses that are no text, before a handler reads them."""

from collections.abc import Awaitable, Callable
from urllib.parse import unquote_to_bytes

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send


class Utf8Addresses:
    """Passes on requests whose address is UTF-8; to all others it says that nothing is there.

    A server puts U+FFFD in the place of bytes that mean nothing, so `/tags/%ff` would be stored as a tag that no caller
    has asked for.

    refusal: what is said to a request with this method and path.
    """

    def __init__(self, app: ASGIApp, refusal: Callable[[str, str], Response]) -> None:
        self._app = app
        self._refusal = refusal

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and not _is_text(scope.get("raw_path") or b""):
            return self._refusal(scope["method"], scope["path"])(scope, receive, send)
        return self._app(scope, receive, send)


def _is_text(raw_path: bytes) -> bool:
    try:
        unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError:
        return False
    return True
