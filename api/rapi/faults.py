"""Errors of the remote API, in its form: code, message, and what the code means (contracts/ganeti-rapi, 2)."""

from collections.abc import Mapping
from html import escape
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from fleetlight.api.http.errors import WHEN_AWAY, TryAgainLaterError, UnauthorizedError, status_of
from fleetlight.api.http.faults import comes_back
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError

_CHALLENGE = 'Basic realm="Ganeti Remote API"'
_UNREACHABLE = (FleetUnreachableError, CellUnreachableError)


class RapiError(Exception):
    """A request is refused with this status; the caller sees the text."""

    def __init__(
        self, status: HTTPStatus, message: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message or status.phrase)
        self.status = status
        self.headers = headers


class UnsureError(RapiError):
    """The item was not found, but a cell that may have it does not answer."""

    def __init__(self, message: str) -> None:
        super().__init__(HTTPStatus.SERVICE_UNAVAILABLE, message, WHEN_AWAY)


def rapi_fault(error: Exception) -> Response:
    """Make the answer to a request that failed. It shows no details of internal errors."""
    if isinstance(error, RapiError):
        return fault(error.status, str(error), error.headers)
    if isinstance(error, UnauthorizedError):
        # Its text is only for the log.
        return fault(HTTPStatus.UNAUTHORIZED, headers={"WWW-Authenticate": _CHALLENGE})
    if isinstance(error, _UNREACHABLE):
        text = "the fleet or the cell cannot be reached now; try again later"
        return fault(HTTPStatus.SERVICE_UNAVAILABLE, text, WHEN_AWAY if comes_back(error) else None)
    status = status_of(error)
    if status is None:
        return fault(HTTPStatus.INTERNAL_SERVER_ERROR)
    headers = error.headers if isinstance(error, TryAgainLaterError) else None
    return fault(HTTPStatus(status), str(error), headers)


def fault(status: HTTPStatus, message: str | None = None, headers: Mapping[str, str] | None = None) -> Response:
    """Make an answer with a status other than 200."""
    document = {
        "code": int(status),
        "message": escape(message or status.phrase),
        "explain": status.description or status.phrase,
    }
    return Response(msgspec.json.encode(document) + b"\n", status, headers, media_type="application/json")
