"""The API as commands use it: within their process, with an operator's rights."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.given import FromSettings
from fleetlight.cli.settings import Settings

if TYPE_CHECKING:
    from fleetlight.api.http.in_process import InProcessResponse
    from fleetlight.cli.in_process import ApiInProcess

_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class OperatorApi:
    """Sends requests to an API with the configured cells and index."""

    settings: Settings
    fleet: Fleet

    def opened(self) -> "AbstractAsyncContextManager[ApiInProcess]":
        """Open the application for the block."""
        from fleetlight.cli.in_process import opened_api  # noqa: PLC0415 -- other commands would start a quarter later

        return opened_api(self.settings, self.fleet)

    def get(
        self,
        path: str,
        query: Mapping[str, object],
        options: Mapping[str, str] = _NOTHING,
        headers: Mapping[str, str] = _NOTHING,
    ) -> tuple[Any, bool]:
        """The document, and whether it covers every cell. options: of `document_of`; raises as it does."""
        from fleetlight.cli.in_process import document_of  # noqa: PLC0415 -- for the same reason

        async def asked() -> "InProcessResponse":
            async with self.opened() as api:
                return await api.call("GET", path, query=urlencode(query), headers=headers)

        answer = asyncio.run(asked())
        return document_of(answer, options), answer.headers.get("fleetlight-complete") == "true"


@contextmanager
def open_operator_api(settings: Settings) -> Iterator[OperatorApi]:
    with open_fleet(settings.fleet) as fleet:
        yield OperatorApi(settings, fleet)


OpenApi = Annotated[OperatorApi, FromSettings(lambda settings, _: open_operator_api(settings))]
