"""JSON answers in parts, so that megabytes of items are not copied to put brackets around them.

Also answers to HEAD without making the body.
"""

from collections.abc import Mapping, Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class PartsResponse(Response):
    """An answer in parts. parts: the body, sent one after the other; at least one."""

    media_type = "application/json"

    def __init__(self, parts: Sequence[bytes], headers: Mapping[str, str]) -> None:
        self._parts = parts
        super().__init__(headers={**headers, "content-length": str(sum(map(len, parts)))})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for part in self._parts[:-1]:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": self._parts[-1]})


class HeadResponse(Response):
    """The headers of `answer`, without its body.

    It omits the length, since the body of a GET may have another one (RFC 9110, 8.6 and 9.3.2).
    """

    def __init__(self, answer: Response) -> None:
        super().__init__(status_code=answer.status_code)
        self.raw_headers = [(name, value) for name, value in answer.raw_headers if name != b"content-length"]
