"""The application of the API in the process of a command, which sends requests to it without a server."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from typing import Any

import msgspec

from fleetlight.api.app import Application, create_app
from fleetlight.api.http.in_process import NO_HEADERS, InProcessResponse, InProcessStream, call, stream
from fleetlight.api.identity import NoIdentity
from fleetlight.api.parts import ApiParts
from fleetlight.cells.errors import CellError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.processes.api_parts import open_parts
from fleetlight.cli.settings import Settings

_OK = 200
_SERVER_ERRORS = 500


class ApiInProcess:
    """An application, and its parts."""

    def __init__(self, app: Application, parts: ApiParts) -> None:
        self._app = app
        self.parts = parts

    async def call(
        self, method: str, path: str, *, query: str = "", headers: Mapping[str, str] = NO_HEADERS, body: bytes = b""
    ) -> InProcessResponse:
        """The answer to a request of an operator."""
        return await call(self._app.web, method, path, query=query, headers=headers, body=body)

    def stream(self, path: str, *, query: str = "") -> AbstractAsyncContextManager[InProcessStream]:
        """The answer to a GET of an operator, while it is made."""
        return stream(self._app.web, path, query=query)


@asynccontextmanager
async def opened_api(settings: Settings, fleet: Fleet) -> AsyncIterator[ApiInProcess]:
    """The application with the configured cells and index; closed at the end."""
    async with open_parts(settings, fleet, NoIdentity()) as parts:
        with closing(create_app(parts)) as app:
            yield ApiInProcess(app, parts)


def in_options(text: str, options: Mapping[str, str]) -> str:
    """What the API complains of, in the words of a command.

    options: the option that a person types for what the API calls by another name, which its complaint begins with.
    """
    plain = text.removeprefix("Invalid body parameters: ").replace("Value error, ", "").replace("Input should", "must")
    name, separator, rest = plain.partition(": ")
    return f"{options[name]}{separator}{rest}" if name in options else plain


def document_of(answer: InProcessResponse, options: Mapping[str, str] = NO_HEADERS) -> Any:
    """The JSON of a success. Raises ConfigurationError for what was refused, and CommandError for what failed.

    options: see in_options.

    Raises CellError when it failed over a database, which callers over a network do not see.
    """
    raise_if_database_failed(answer)
    document = msgspec.json.decode(answer.body)
    if answer.status != _OK:
        [fault] = document.values()
        raise (ConfigurationError if answer.status < _SERVER_ERRORS else CommandError)(
            in_options(fault["message"], options)
        )
    return document


def raise_if_database_failed(answer: InProcessResponse) -> None:
    """Raises the CellError that the answer was made of, which names the database and what is wrong with it."""
    if answer.status >= _SERVER_ERRORS and isinstance(answer.failure, CellError):
        raise answer.failure
