"""Refusing addresses that are no text, before a handler reads them."""

from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from api.http.faults import no_such_route


class Utf8Addresses:
    """Passes on requests whose address is UTF-8; to all others it says that nothing is there.

    A server puts U+FFFD in the place of bytes that mean nothing, so `/tags/%ff` would be stored as a tag that no caller
    has asked for.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_text(scope.get("raw_path") or b""):
            await no_such_route()(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _is_text(raw_path: bytes) -> bool:
    try:
        unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError:
        return False
    return True
