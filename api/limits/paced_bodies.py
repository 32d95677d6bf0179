"""Large answers in pieces, of which each is sent when the caller has taken the one before.

A server that gets an answer of megabytes at once keeps it until the caller has read it, and cannot say how far that is.
Each piece has a deadline (`fleetlight.api.limits.request_deadlines`), and the bytes that callers have not taken yet are
counted: while one caller, or all of them, have too many, no further page is begun (`fleetlight.api.limits.admission`).
"""

from collections.abc import Awaitable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleetlight.api.limits.admission import admission_of
from fleetlight.listing.admission import NO_LIMIT

PIECE_BYTES = 256 * 1024


class PacedBodies:
    """Sends every body in pieces of at most PIECE_BYTES."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        async def send_paced(message: Message) -> None:
            body = message.get("body", b"")
            if len(body) <= PIECE_BYTES:
                await send(message)
                return
            admission = admission_of(scope) or NO_LIMIT
            with admission.handing_over(len(body)):
                await _send_pieces(message, send)

        return self._app(scope, receive, send_paced)


async def _send_pieces(message: Message, send: Send) -> None:
    body = memoryview(message["body"])
    last = (len(body) - 1) // PIECE_BYTES * PIECE_BYTES
    for begin in range(0, last, PIECE_BYTES):
        await send({**message, "body": body[begin : begin + PIECE_BYTES], "more_body": True})
    await send({**message, "body": body[last:]})
