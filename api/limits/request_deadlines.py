"""Time limits for clients: for sending the headers and the body of a request, and for taking an answer.

uvicorn only ends connections that are idle between requests, and each byte restarts its time. So this module adds a
timer to uvicorn's protocol for HTTP/1.1. A limit applies to the whole headers or body, however slowly they come, and
whether the application reads the body, has answered without it, or still answers.
It also refuses lines of a request with wrong ends, in which a proxy may see another request.
"""

import asyncio
import re
from dataclasses import dataclass

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_END_OF_HEAD = b"\r\n\r\n"
# RFC 9112, 2.2: a line may be refused that ends with LF alone. 5.2: one that goes on in the next (obs-fold) has to be.
_MALFORMED = re.compile(rb"(?<!\r)\n|\r\n[ \t]")


class StrictLines(H11Protocol):
    """Answers 400 to a request line or header that is folded, or ends without a CR; h11 would accept them."""

    def handle_events(self) -> None:
        if self.conn.their_state is h11.IDLE:
            head, _, _ = self.conn.trailing_data[0].partition(_END_OF_HEAD)
            if _MALFORMED.search(head):
                self.send_400_response("Lines of a request end with CR LF, and no header goes on in the next line.")
                return
        super().handle_events()


_MESSAGE = b"408 Request Timeout\n\nThe request did not arrive in time.\n"
# States of the server's side of a connection before it begins to answer.
_UNANSWERED = (h11.IDLE, h11.SEND_RESPONSE)


@dataclass(frozen=True, slots=True)
class RequestDeadlines:
    """Time limits. headers_s: from the connection, or a later request's first byte, to the end of the headers.

    body_s: from there to the end of the body.
    taking_s: from when the buffer of the answer is full, to when the client has taken most of it.
    """

    headers_s: float
    body_s: float
    taking_s: float


def protocol_with(deadlines: RequestDeadlines) -> type[H11Protocol]:
    """Make the protocol class for uvicorn's parameter `http`."""

    class Protocol(TimedProtocol):
        allowed = deadlines

    return Protocol


class TimedProtocol(StrictLines):
    """A connection that closes when the client is late.

    An unanswered request gets 408 first. An application that reads the body sees a disconnected client.
    """

    allowed: RequestDeadlines
    _timer: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None
    # The state of the client and its request: the pair changes whenever a timer must start.
    _awaited: tuple[object, object] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a request is unanswered, or its answer not taken."""
        is_answered = self.cycle is None or self.cycle.response_complete
        return not is_answered or bool(self.transport.get_write_buffer_size())

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._set_timer()

    def handle_events(self) -> None:
        super().handle_events()
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_waiting_for_reader()
        super().connection_lost(exc)
        # Break the reference cycle with the request, which would keep the rest of its body in memory.
        self.cycle = None  # type: ignore[assignment]  # as uvicorn begins

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taking = self.loop.call_later(self.allowed.taking_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_waiting_for_reader()
        super().resume_writing()

    def _stop_waiting_for_reader(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _set_timer(self) -> None:
        """Start the timer for what the client must send now, if anything."""
        state = self.conn.their_state
        # uvicorn itself ends connections that are idle between requests.
        is_late_from_now = state is h11.SEND_BODY or (
            state is h11.IDLE and (self.cycle is None or bool(self.conn.trailing_data[0]))
        )
        awaited = (state, self.cycle) if is_late_from_now and not self.transport.is_closing() else None
        if awaited == self._awaited:
            return
        self._stop_timer()
        self._awaited = awaited
        if awaited is not None:
            wait_s = self.allowed.body_s if state is h11.SEND_BODY else self.allowed.headers_s
            self._timer = self.loop.call_later(wait_s, self._give_up)

    def _stop_timer(self) -> None:
        self._awaited = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if self.conn.our_state in _UNANSWERED and (self.cycle is not None or self.conn.trailing_data[0]):
            self._answer_408()
        if self.cycle is not None and not self.cycle.response_complete:
            # Tell the application now that it cannot send any more, before the transport does.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        # Abort if the client does not read: `close` would wait for it.
        (self.transport.abort if self.transport.get_write_buffer_size() else self.transport.close)()

    def _answer_408(self) -> None:
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(_MESSAGE)).encode()),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=408, headers=headers, reason=b"Request Timeout"),
            h11.Data(data=_MESSAGE),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
