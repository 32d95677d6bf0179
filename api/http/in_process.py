"""A request to an application in this process, without a server and without a socket."""

from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Scope

_ADDRESS = ("127.0.0.1", 8774)


async def get(app: ASGIApp, path: str, query: str, headers: Sequence[tuple[bytes, bytes]]) -> tuple[int, bytes]:
    """Status and body of a GET. headers: names in lower case, and values."""
    scope: Scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": headers,
        "server": _ADDRESS,
        "client": ("127.0.0.1", 1),
        "root_path": "",
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])
