"""The log event of each request, if the setting `api.access_log` is on."""

import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleetlight.api.http.connection import address_of_client, shown

_log = structlog.get_logger(__name__)


class AccessLog:
    """Passes on requests, and logs each at its end, even if it got no answer, or its caller disconnected.

    It logs neither headers nor bodies, since these hold logins.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status: int | None = None
        request_id: str | None = None

        async def send_and_look(message: Message) -> None:
            nonlocal status, request_id
            if message["type"] == "http.response.start":
                status = message["status"]
                request_id = _request_id(message)
            await send(message)

        try:
            await self._app(scope, receive, send_and_look)
        finally:
            _log.info(
                "request",
                address=address_of_client(scope),
                method=scope["method"],
                path=shown(scope["path"]),
                query=shown(scope["query_string"].decode("latin-1")),
                status=status,
                duration_ms=round((time.perf_counter() - started) * 1000, 1),
                request_id=request_id,
            )


def _request_id(message: Message) -> str | None:
    return next(
        (value.decode("latin-1") for name, value in message["headers"] if name.lower() == b"x-openstack-request-id"),
        None,
    )
