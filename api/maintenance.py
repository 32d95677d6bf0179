"""The face `/fleetlight/safe-connect`: administrators reset the safe-connect flag of a running API."""

import asyncio
from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import Route

from fleetlight.api.command import Command
from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import empty_answer
from fleetlight.api.http.errors import ForbiddenError
from fleetlight.api.services import Services
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.cells.daemon_threads import in_background
from fleetlight.listing.safe_connect import SafeConnect

RESET_SAFE_CONNECT = ApiOperation(
    "POST",
    "/fleetlight/safe-connect/reset",
    success=204,
    faults=(403,),
    summary="Let lists use an index again that has failed a request; for administrators",
)


def routes(services: Services) -> Sequence[Route]:
    maintenance = Maintenance(services.index.safe_connect, services.parts.command)
    return [services.middleware.route(RESET_SAFE_CONNECT, maintenance.reset_safe_connect)]


class Maintenance:
    """Handlers for administrators. command: the command of several processes that this process belongs to, if any."""

    def __init__(self, safe_connect: SafeConnect, command: Command | None = None) -> None:
        self._safe_connect = safe_connect
        self._command = command

    async def reset_safe_connect(self, request: ApiRequest) -> Response:
        """Have lists use the index again, as after a restart; no error if they do already. Raises ForbiddenError."""
        if not request.caller.is_admin:
            raise ForbiddenError("fleetlight:safe-connect:reset")
        self._safe_connect.reset()
        if self._command is not None:
            await asyncio.wrap_future(in_background(self._command.reset_safe_connect, "safe-connect"))
        return empty_answer(204)
