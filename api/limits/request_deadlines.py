"""Time limits for what clients send, the headers of a request and its body, and for what they take of an answer.

uvicorn has none: it ends connections that are idle between requests, and each byte that arrives begins that time anew.
So this is its protocol for HTTP/1.1 with a timer. A limit counts for the whole of what it is for, however it trickles
in, and whether the application reads it, has answered without it, or still answers.

Lines of a request have to end as HTTP has it: others are refused, for a proxy may see another request in them.
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
    """Answers 400 to a request line or header that h11 would take, though it is folded or ends without a CR."""

    def handle_events(self) -> None:
        if self.conn.their_state is h11.IDLE:
            head, _, _ = self.conn.trailing_data[0].partition(_END_OF_HEAD)
            if _MALFORMED.search(head):
                self.send_400_response("Lines of a request end with CR LF, and no header goes on in the next line.")
                return
        super().handle_events()


_MESSAGE = b"408 Request Timeout\n\nThe request did not arrive in time.\n"
# Of the server's side of a connection, as long as it has not begun to answer.
_UNANSWERED = (h11.IDLE, h11.SEND_RESPONSE)


@dataclass(frozen=True, slots=True)
class RequestDeadlines:
    """headers_s: from the opening of a connection, or the first byte of a later request, to the end of its headers.
    body_s: from there to the end of the body.
    taking_s: from when so much of an answer waits for the client that no more is written, to when most of it is taken.
    """

    headers_s: float
    body_s: float
    taking_s: float


def protocol_with(deadlines: RequestDeadlines) -> type[H11Protocol]:
    """What uvicorn takes as `http`."""

    class Protocol(TimedProtocol):
        allowed = deadlines

    return Protocol


class TimedProtocol(StrictLines):
    """A connection that is closed when what it has to send now is late.

    A request that was not answered yet gets 408 before. For the application that reads the body its client has gone.
    """

    allowed: RequestDeadlines
    _timer: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None
    # The state of the client, and the request before or of it: together they are new whenever a timer has to begin.
    _awaited: tuple[object, object] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a request is not answered, or its answer not taken."""
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
        # It knows this connection, and has the request and what is left of its body: neither would go by itself.
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
        """Let the timer run for what the client has to send now, if that is anything."""
        state = self.conn.their_state
        # Between two requests a connection is idle, which uvicorn itself ends.
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
            # Nothing more can be sent, which the application must not try before the transport has told it.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        # A client that does not read what it was sent before would not let the connection be closed.
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
