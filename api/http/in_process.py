"""Requests to an application in this process, without a server or socket."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_ADDRESS = ("127.0.0.1", 8774)


@dataclass(frozen=True, slots=True)
class InProcessResponse:
    """A response. headers: names in lower case. failure: cause of a fault; may say more than the fault."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    failure: Exception | None = None


@dataclass(frozen=True, slots=True)
class InProcessStream:
    """A streamed response. head: the response without its body. pieces: the body, each piece made on demand."""

    head: InProcessResponse
    pieces: AsyncIterator[bytes]


async def call(
    app: ASGIApp, method: str, path: str, *, query: str = "", headers: Mapping[str, str] = NO_HEADERS, body: bytes = b""
) -> InProcessResponse:
    """Send a request to the application, and return its response. path: escaped, as on a network."""
    scope = _scope(method, path, query, headers)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, _receiving(body), send)
    begin, *rest = sent
    return _response(scope, begin, b"".join(message.get("body", b"") for message in rest))


@asynccontextmanager
async def stream(app: ASGIApp, path: str, *, query: str = "") -> AsyncIterator[InProcessStream]:
    """Send a GET to the application, and stream its response; the end of the block stops the application.

    Errors of the application are raised where the next piece is taken.
    """
    scope = _scope("GET", path, query, NO_HEADERS)
    sent: asyncio.Queue[Message | Exception | None] = asyncio.Queue(1)
    receive = _receiving(b"")

    async def run() -> None:
        try:
            await app(scope, receive, sent.put)
        except Exception as error:  # noqa: BLE001 -- it is raised where the answer is read
            await sent.put(error)
        else:
            await sent.put(None)

    async def pieces() -> AsyncIterator[bytes]:
        while (message := await sent.get()) is not None:
            if isinstance(message, Exception):
                raise message
            yield message.get("body", b"")

    running = asyncio.create_task(run())
    try:
        begin = await sent.get()
        if begin is None or isinstance(begin, Exception):
            raise begin or RuntimeError(f"{path} was not answered")
        yield InProcessStream(_response(scope, begin, b""), pieces())
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _receiving(body: bytes) -> Receive:
    """Make the `receive` of a client that sends `body`, and then waits without disconnecting."""
    bodies = iter([{"type": "http.request", "body": body, "more_body": False}])
    for_ever = asyncio.Event()

    async def receive() -> Message:
        if (message := next(bodies, None)) is None:
            await for_ever.wait()
        return message or {"type": "http.disconnect"}

    return receive


def _scope(method: str, path: str, query: str, headers: Mapping[str, str]) -> Scope:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "server": _ADDRESS,
        "client": ("127.0.0.1", 1),
        "root_path": "",
        "state": {},
    }


def _response(scope: Scope, begin: Message, body: bytes) -> InProcessResponse:
    given = {name.decode().lower(): value.decode() for name, value in begin["headers"]}
    return InProcessResponse(begin["status"], given, body, scope["state"].get("failure"))
