"""Error bodies in Keystone's form (contracts/nova-rest, 5.5), which the compute API uses for 401, too."""

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from fleetlight.api.http.errors import ApiError, TryAgainLaterError, UnauthorizedError, status_of

_UNAUTHORIZED = "The request you have made requires authentication."


def identity_fault(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    error = {"code": status, "message": message, "title": HTTPStatus(status).phrase}
    return Response(msgspec.json.encode({"error": error}), status, headers, media_type="application/json")


def unauthorized(error: UnauthorizedError, root: str) -> Response:
    """Make the answer to an unauthorized caller, the same for every reason. root: address of the application."""
    return identity_fault(401, _UNAUTHORIZED, {"WWW-Authenticate": error.challenge.replace("{root}", root)})


def identity_fault_of(error: Exception, root: str) -> Response:
    """Make the answer to a request that failed with `error`; it says nothing about internal errors."""
    status = status_of(error) or 500
    if isinstance(error, UnauthorizedError):
        return unauthorized(error, root)
    if isinstance(error, TryAgainLaterError):
        return identity_fault(status, str(error), error.headers)
    if isinstance(error, ApiError):
        return identity_fault(status, str(error))
    return identity_fault(500, "What happened is in the log under the request id.")
