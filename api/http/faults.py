"""Error bodies of the compute API (contracts/nova-servers, section 10)."""

from collections.abc import Mapping
from uuid import uuid4

import msgspec
from starlette.responses import PlainTextResponse, Response

from fleetlight.api.http.errors import (
    FAULT_KEYS,
    OTHER_FAULT_KEY,
    WHEN_AWAY,
    ApiError,
    BodyTooLargeError,
    TryAgainLaterError,
    status_of,
)
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError, FleetUnusableError, UnreadableRowError
from fleetlight.listing.errors import CellDownError, ListingError

REQUEST_ID_HEADERS = ("X-Openstack-Request-Id", "X-Compute-Request-Id")
_AWAY = (CellDownError, CellUnreachableError, FleetUnreachableError)
_BROKEN = (FleetUnusableError, UnreadableRowError)


def fault_of(error: Exception, *, is_change: bool = False) -> Response:
    """Make the answer to a request that failed with `error`.

    It explains errors of callers. Of internal errors it shows only the class, since their texts may name servers.
    is_change: whether the request changes something. While the fleet database is away, or the database of a cell to be
    changed, the answer is 503 with the time to try again. Reads of a down cell are answered as by Nova
    (contracts/nova-servers, 6).
    """
    status = status_of(error) or 500
    headers = error.headers if isinstance(error, TryAgainLaterError) else None
    if comes_back(error) and (is_change or isinstance(error, FleetUnreachableError)):
        status, headers = 503, WHEN_AWAY
    message = "".join((str(error), *getattr(error, "__notes__", ())))
    if isinstance(error, BodyTooLargeError):
        return PlainTextResponse(f"413 Request Entity Too Large\n\n{message}\n", status)
    if isinstance(error, CellUnreachableError):
        message = str(CellDownError(error.cell))
    elif status == 503 and isinstance(error, FleetUnreachableError):
        message = "The fleet database cannot be reached. Try again later."
    elif status >= 500 and not isinstance(error, ApiError | ListingError):
        message = f"Unexpected API Error. What happened is in the log under the request id. {type(error).__name__}"
    return fault(status, message, headers)


def comes_back(error: Exception) -> bool:
    """Whether the error is a database that is away, and not broken, so that it comes back by itself."""
    return isinstance(error, _AWAY) and not isinstance(error, _BROKEN)


def fault(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    key = FAULT_KEYS.get(status, OTHER_FAULT_KEY)
    body = msgspec.json.encode({key: {"code": status, "message": message}})
    return Response(body, status, headers, media_type="application/json")


def no_such_route() -> Response:
    """Answer an unknown path, or a known path with another method."""
    return PlainTextResponse("404 Not Found\n\nThere is nothing at this address.\n", 404)


def no_such_address() -> Response:
    """As `no_such_route`, for a request to which no endpoint has given an id yet."""
    request_id, response = f"req-{uuid4()}", no_such_route()
    for name in REQUEST_ID_HEADERS:
        response.headers[name] = request_id
    return response
