"""`POST /mcp`: the tools over streamable HTTP, without sessions, so that any process answers any request."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from fleetlight.api.documented import ApiOperation, DocumentedRoute
from fleetlight.api.http.errors import NotSupportedError
from fleetlight.api.http.in_process import InProcessResponse, call
from fleetlight.api.http.shapes import OBJECT
from fleetlight.api.services import Services
from fleetlight.api.shared.endpoint import ApiRequest

OPERATION = ApiOperation(
    "POST",
    "/mcp",
    OBJECT,
    faults=(400, 501),
    summary="Tools for assistants, which only read, by the Model Context Protocol",
)
_OF_CONNECTION = {"content-length", "connection"}


class AssistantsFace:
    """The face for assistants, while it is `running`. Its first request loads the tools, which takes a second."""

    def __init__(self, services: Services) -> None:
        self._middleware = services.middleware
        self._clock = services.parts.clock
        self._web: ASGIApp | None = None
        self._opening = asyncio.Lock()
        self._serving: asyncio.Task[None] | None = None

    def routes(self) -> Sequence[Route]:
        answer = self._middleware.endpoint(self._answer)

        async def answer_bearer(http: Request) -> Response:
            """Take the token as OAuth sends it: assistants do not send the header of OpenStack's clients."""
            scheme, _, token = http.headers.get("authorization", "").partition(" ")
            if scheme.lower() == "bearer":
                others = [pair for pair in http.scope["headers"] if pair[0] != b"authorization"]
                headers = [*others, (b"x-auth-token", token.strip().encode())]
                http = Request({**http.scope, "headers": headers}, http.receive)
            return await answer(http)

        return [DocumentedRoute(OPERATION, answer_bearer)]

    @asynccontextmanager
    async def running(self, web: ASGIApp) -> AsyncIterator[None]:
        """Serve tools in the block. web: the application that they query. Without the extra `mcp` nothing runs."""
        self._web = web
        yield
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait({self._serving})
        self._web = self._serving = None

    async def _answer(self, request: ApiRequest) -> Response:
        """Answer a request of a tool's client. Raises NotSupportedError without the extra `mcp`."""
        if self._web is None or find_spec("mcp") is None:
            raise NotSupportedError("assistants need the package mcp: install fleetlight[mcp]")
        async with self._opening:
            if self._serving is None or self._serving.done():
                await self._open(self._web)
        http = request.http
        answer = await call(self._answers, "POST", OPERATION.path, headers=dict(http.headers), body=await http.body())
        headers = {name: value for name, value in answer.headers.items() if name not in _OF_CONNECTION}
        return Response(answer.body, answer.status, headers)

    async def _open(self, web: ASGIApp) -> None:
        await asyncio.to_thread(import_module, f"{__package__}.tools")  # meanwhile other requests go on
        from fleetlight.api.assistants.tools import make_server, over_http  # noqa: PLC0415 -- of an extra

        async def ask(path: str, query: str, headers: Mapping[str, str]) -> InProcessResponse:
            return await call(web, "GET", path, query=query, headers=headers)

        manager = over_http(make_server(ask, self._clock, version("fleetlight")))
        self._answers, has_begun = manager.handle_request, asyncio.get_running_loop().create_future()

        async def serve() -> None:
            try:
                async with manager.run():
                    has_begun.set_result(None)
                    await asyncio.Event().wait()
            except Exception as error:
                if has_begun.done():
                    raise
                has_begun.set_exception(error)

        self._serving = asyncio.create_task(serve())
        await has_begun
