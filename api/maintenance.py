"""What operators may do to a running API, below `/fleetlight/`: a face of our own, behind the same door as Nova's."""

from starlette.responses import Response

from api.compute.protocol.endpoint import ComputeRequest
from api.documented import Operation
from api.http.answers import empty_answer
from api.http.errors import ForbiddenError
from listing.safe_connect import SafeConnect

RESET_SAFE_CONNECT = Operation(
    "POST",
    "/fleetlight/safe-connect/reset",
    success=204,
    faults=(403,),
    summary="Let lists use an index again that has failed a request; for administrators",
)


class Maintenance:
    """Handlers for administrators."""

    def __init__(self, safe_connect: SafeConnect) -> None:
        self._safe_connect = safe_connect

    async def reset_safe_connect(self, request: ComputeRequest) -> Response:
        """Let lists use the index again, as a restart of this process would; no error when they do already."""
        if not request.caller.is_admin:
            raise ForbiddenError("fleetlight:safe-connect:reset")
        self._safe_connect.reset()
        return empty_answer(204)
