"""Runs the API's application within a command, which sends it requests without a server."""

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
    """The application of the API, and the parts it was built from."""

    def __init__(self, app: Application, parts: ApiParts) -> None:
        self._app = app
        self.parts = parts

    async def call(
        self, method: str, path: str, *, query: str = "", headers: Mapping[str, str] = NO_HEADERS, body: bytes = b""
    ) -> InProcessResponse:
        """Send a request with an operator's rights, and return the answer."""
        return await call(self._app.web, method, path, query=query, headers=headers, body=body)

    def stream(self, path: str, *, query: str = "") -> AbstractAsyncContextManager[InProcessStream]:
        """Send a GET with an operator's rights, and return the answer as a stream."""
        return stream(self._app.web, path, query=query)


@asynccontextmanager
async def opened_api(settings: Settings, fleet: Fleet) -> AsyncIterator[ApiInProcess]:
    """Open the application with the configured cells and index for the block."""
    async with open_parts(settings, fleet, NoIdentity()) as parts:
        with closing(create_app(parts)) as app:
            yield ApiInProcess(app, parts)


def in_options(text: str, options: Mapping[str, str]) -> str:
    """Rephrase an error message of the API for the user of a command.

    options: maps the API's name of a parameter, with which the message begins, to the option of the command.
    """
    plain = text.removeprefix("Invalid body parameters: ").replace("Value error, ", "").replace("Input should", "must")
    name, separator, rest = plain.partition(": ")
    return f"{options[name]}{separator}{rest}" if name in options else plain


def document_of(answer: InProcessResponse, options: Mapping[str, str] = NO_HEADERS) -> Any:
    """Decode the JSON of a successful answer. options: see in_options.

    Raises ConfigurationError if the request was refused, CommandError if it failed, and CellError if a database failed;
    callers over a network do not see the latter.
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
    """Raises the CellError behind a failed answer, which names the database and what is wrong with it."""
    if answer.status >= _SERVER_ERRORS and isinstance(answer.failure, CellError):
        raise answer.failure
