"""A request to an application in this process, without a server and without a socket."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from starlette.types import ASGIApp, Message, Scope

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_ADDRESS = ("127.0.0.1", 8774)


@dataclass(frozen=True, slots=True)
class InProcessResponse:
    """headers: their names in lower case. failure: behind a fault; may say more than a caller over a network gets."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    failure: Exception | None = None


async def call(
    app: ASGIApp, method: str, path: str, *, query: str = "", headers: Mapping[str, str] = NO_HEADERS, body: bytes = b""
) -> InProcessResponse:
    """The answer of the application to a request."""
    scope: Scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "server": _ADDRESS,
        "client": ("127.0.0.1", 1),
        "root_path": "",
        "state": {},
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    begin, *rest = sent
    given = {name.decode().lower(): value.decode() for name, value in begin["headers"]}
    whole = b"".join(message.get("body", b"") for message in rest)
    return InProcessResponse(begin["status"], given, whole, scope["state"].get("failure"))
