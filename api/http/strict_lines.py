"""Lines of requests that end as HTTP has it: others are refused, for a proxy may see another request in them."""

import re

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
