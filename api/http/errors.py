"""Errors of requests, and the status of each.

ApiError
├── BadRequestError               the request cannot be understood
│   ├── ParameterError            one parameter has a value that it cannot have
│   ├── BodyFieldError            one field of the body has a value that it cannot have
│   ├── TooManyPartsError         the body has more commas and brackets than any that makes sense
│   ├── CallerLeftError           the caller has gone before there was an answer
│   └── MicroversionSyntaxError   the microversion header cannot be read
├── UnauthorizedError             the request has no valid login
├── TryAgainLaterError            the same request may succeed some seconds later
│   ├── TooManyLoginsError        too many wrong logins of one caller, or too many logins at once
│   ├── TooManyListsError         the queue of lists is full, or this list has waited too long
│   ├── IncompleteDiscoveryError  targets may be missing, and there was no complete answer before
│   ├── TooManyWatchesError       the process has the largest number of streams
│   └── TooManyOwnWatchesError    the caller, or its project, has its largest number of streams
├── ForbiddenError                the caller may not do this
├── TooManyCredentialsError       the user has the largest number of application credentials
├── NotFoundError                 there is no such thing, or none that the caller may see
│   ├── NotInMicroversionError    the method exists, in another microversion
│   ├── IdentityNotFoundError     no such user, project, role or token
│   └── ServerNotFoundError       no such server
├── ConflictError                 the state of the resource does not allow it
│   └── DirectoryError            users, projects and roles cannot be changed in this way
├── GoneError                     Nova has removed the resource at every microversion
├── BodyTooLargeError             the body of the request is larger than any that makes sense
├── CutExportError                a cell failed while its rows were sent, so the file has no end
├── NotSupportedError             no cell of the fleet can do this
├── UnsupportedMicroversionError  the microversion does not exist
├── UnsupportedMediaTypeError     the request's body is not JSON
├── DirectoryUnavailableError     the file of users cannot be read or written
├── IdentityServiceError          the identity service does not answer
├── IdentityConfigurationError    at the start: the strategy of identity lacks a setting
└── InsecureListeningError        at the start: the server would be open to every caller

The table `STATUS` also has the errors of other packages that a request can cause.
"""

from pathlib import Path

from fleetlight.cells.errors import (
    CellUnreachableError,
    FleetUnreachableError,
    InstanceNotFoundError,
    InvalidKeyError,
    NotResizedError,
    QuotaExceededError,
    ResourceExistsError,
    ResourceNotFoundError,
    StateConflictError,
    WorkRefusedError,
)
from fleetlight.listing.errors import CellDownError, MarkerNotFoundError, TokenError, TooManyGroupsError
from fleetlight.query.errors import QueryError
from fleetlight.resources.errors import FieldError


class ApiError(Exception):
    """A request is answered with an error; the caller sees the text."""


class BadRequestError(ApiError):
    """The request cannot be understood."""


class ParameterError(BadRequestError):
    """The query parameter or header `name` has a `value` that it cannot have."""

    def __init__(self, name: str, value: str, reason: str) -> None:
        super().__init__(f"Invalid input for query parameters {name}. Value: {value}. {reason}")
        self.name = name
        self.value = value


class BodyFieldError(BadRequestError):
    """The field at `place` of the body (steps with dots between) has a `value` (as text) that it cannot have."""

    def __init__(self, place: str, value: str, reason: str) -> None:
        super().__init__(f"Invalid input for field/attribute {place}. Value: {value}. {reason}")
        self.place = place


class TooManyPartsError(BadRequestError):
    """The body has more than `limit` parts (fleetlight.api.limits.large_bodies)."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"Malformed request body: it has more than {limit} parts, commas and brackets")
        self.limit = limit


class MicroversionSyntaxError(BadRequestError):
    """`value` is neither `2.N` nor `latest`."""

    def __init__(self, value: str) -> None:
        super().__init__(f"API Version String {value} is of invalid format. Must be of format MajorNum.MinorNum.")
        self.value = value


class CallerLeftError(BadRequestError):
    """The caller has closed the connection, so the work for it ends."""

    def __init__(self) -> None:
        super().__init__("The caller has gone.")


TOKEN_CHALLENGE = 'Keystone uri="{root}/identity"'  # noqa: S105  # how to get a token


class UnauthorizedError(ApiError):
    """The request has no valid login. The text is for the log.

    challenge: the value of WWW-Authenticate; `{root}` stands for the application's address.
    """

    def __init__(self, reason: str, challenge: str = TOKEN_CHALLENGE) -> None:
        super().__init__(reason)
        self.challenge = challenge


WHEN_AWAY = {"Retry-After": "5"}
"""Headers of the answer while a database is away; in seconds."""


RETRY_LISTS_AFTER_S = 2


class TryAgainLaterError(ApiError):
    """The same request may succeed in `retry_after_s` seconds; the answer's `headers` say so."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(self.retry_after_s)}


class TooManyLoginsError(TryAgainLaterError):
    """A caller has sent too many wrong logins, or too many logins wait; it may try again in `retry_after_s` seconds."""

    def __init__(self, retry_after_s: int, reason: str = "Too many failed logins.") -> None:
        super().__init__(f"{reason} Try again in {retry_after_s} seconds.", retry_after_s)


class TooManyListsError(TryAgainLaterError):
    """The list cannot be made soon. is_own: its caller already waits for, or receives, the largest number of lists."""

    def __init__(self, *, is_own: bool) -> None:
        reason = "You wait for, or receive, too many lists already" if is_own else "Too many lists are asked for"
        super().__init__(f"{reason}. Try again in {RETRY_LISTS_AFTER_S} seconds.", RETRY_LISTS_AFTER_S)


class TooManyBodiesError(TryAgainLaterError):
    """There is no room for the body now. is_own: its caller has sent the largest amount that may be unanswered."""

    def __init__(self, *, is_own: bool) -> None:
        reason = "You send too much at once" if is_own else "Too much is sent at once"
        super().__init__(f"{reason}. Try again in {RETRY_LISTS_AFTER_S} seconds.", RETRY_LISTS_AFTER_S)


class IncompleteDiscoveryError(TryAgainLaterError):
    """Targets of the saved view `name` may be missing, and the process has no earlier complete answer."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Instances of '{name}' may be missing, since a cell does not answer: keep the targets that you have.", 30
        )
        self.name = name


class TooManyWatchesError(TryAgainLaterError):
    """There are `limit` streams already."""

    def __init__(self, limit: int, retry_after_s: int) -> None:
        super().__init__(f"There are {limit} watches already, as many as there may be. Try again later.", retry_after_s)
        self.limit = limit


class TooManyOwnWatchesError(TryAgainLaterError):
    """`holder`, the caller's user or project, has `limit` streams already."""

    def __init__(self, holder: str, limit: int, retry_after_s: int) -> None:
        super().__init__(
            f"This {holder} has {limit} watches already, as many as one may have. End one, or try again later.",
            retry_after_s,
        )
        self.holder = holder
        self.limit = limit


class ForbiddenError(ApiError):
    """The caller may not do what `rule` guards."""

    def __init__(self, rule: str) -> None:
        super().__init__(f"Policy doesn't allow {rule} to be performed.")
        self.rule = rule


class TooManyCredentialsError(ApiError):
    """The user has `limit` application credentials already."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"Unable to create additional application credentials: there are {limit}, as many as a user may have. "
            "Delete one that is not needed."
        )
        self.limit = limit


class NotFoundError(ApiError):
    """There is no such thing, or none that the caller may see: the two must look the same."""


class NotInMicroversionError(NotFoundError):
    """The method exists at this address, but not in microversion 2.`minor`."""

    def __init__(self, minor: int) -> None:
        super().__init__(f"API method not found in microversion 2.{minor}.")
        self.minor = minor


class ServerNotFoundError(NotFoundError):
    """No server with this id, or none that the caller may see: the two must look the same."""

    def __init__(self, server_id: str) -> None:
        super().__init__(f"Instance {server_id} could not be found.")
        self.server_id = server_id


class ConflictError(ApiError):
    """The state of the resource does not allow the request."""


class GoneError(ApiError):
    """Nova has removed the resource at `path`, at every microversion."""

    def __init__(self, path: str) -> None:
        super().__init__(f"The API at {path} is no longer supported.")
        self.path = path


class BodyTooLargeError(ApiError):
    """The body of the request has more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"Request is too large: a body may have {limit} bytes.")
        self.limit = limit


class CutExportError(ApiError):
    """A cell failed while its rows were sent: the answer is cut off, so that no client takes it for complete."""

    def __init__(self) -> None:
        super().__init__("a cell was lost while its rows were sent: the export is cut off")


class NotSupportedError(ApiError):
    """What the request asks for cannot be done here: by its cell, by any cell, or by what is installed."""


class UnsupportedMicroversionError(ApiError):
    """`version` is well-formed, but outside of the range `lowest` to `highest`."""

    def __init__(self, version: str, lowest: str, highest: str) -> None:
        super().__init__(
            f"Version {version} is not supported by the API. Minimum is {lowest} and maximum is {highest}."
        )
        self.version = version


class UnsupportedMediaTypeError(ApiError):
    """The body of the request is not JSON."""

    def __init__(self, content_type: str) -> None:
        super().__init__(f"Unsupported Content-Type: {content_type}. Use application/json.")
        self.content_type = content_type


class NoEventsError(ApiError):
    """The request accepts only a stream of events, and the route has none."""

    def __init__(self) -> None:
        super().__init__(
            "There are no events (text/event-stream) here, but of GET /v2.1/servers/detail and GET /fleetlight/changes."
        )


class DirectoryError(ConflictError):
    """Users, projects, roles or credentials cannot be changed in this way; the text says why."""


class UnknownInDirectoryError(DirectoryError):
    """The user, project, role or credential does not exist; the text names it."""


class IdentityNotFoundError(NotFoundError):
    """The directory has no such entry, or none that the caller may see. kind: its type; name: as given."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"Could not find {kind}: {name}.")
        self.kind = kind
        self.name = name


class DirectoryUnavailableError(ApiError):
    """The file of users at `path` cannot be read or written. The path and the `reason` are for the log."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__("The users cannot be looked up at the moment. Try again later.")
        self.path = path
        self.reason = reason


class IdentityServiceError(ApiError):
    """The identity service does not answer. The `reason` is for the log."""

    def __init__(self, reason: str) -> None:
        super().__init__("The identity service cannot be reached. Try again later.")
        self.reason = reason


class IdentityConfigurationError(ApiError):
    """The configured strategy of identity cannot work; the text names what it lacks."""


class InsecureListeningError(ApiError):
    """Listening on `host` would let every caller in."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"refusing to listen on {host}: with authentication `none` every caller is an administrator. "
            "Listen on 127.0.0.1, or add --insecure if that is what you want"
        )
        self.host = host


# The first class that fits gives the status, so narrow classes come before wide ones.
STATUS: dict[type[Exception], int] = {
    BadRequestError: 400,
    UnauthorizedError: 401,
    ForbiddenError: 403,
    TooManyCredentialsError: 403,
    NotFoundError: 404,
    UnsupportedMicroversionError: 406,
    NoEventsError: 406,
    ConflictError: 409,
    GoneError: 410,
    BodyTooLargeError: 413,
    UnsupportedMediaTypeError: 415,
    TooManyLoginsError: 429,
    TooManyOwnWatchesError: 429,
    CellDownError: 500,
    MarkerNotFoundError: 400,
    TokenError: 400,
    TooManyGroupsError: 400,
    NotSupportedError: 501,
    DirectoryUnavailableError: 503,
    IdentityServiceError: 503,
    TooManyListsError: 503,
    TooManyBodiesError: 503,
    IncompleteDiscoveryError: 503,
    TooManyWatchesError: 503,
    FieldError: 400,
    QueryError: 400,
    InvalidKeyError: 400,
    NotResizedError: 400,
    QuotaExceededError: 403,
    ResourceNotFoundError: 404,
    InstanceNotFoundError: 404,
    StateConflictError: 409,
    ResourceExistsError: 409,
    WorkRefusedError: 409,
    CellUnreachableError: 500,
    FleetUnreachableError: 500,
}
# contracts/nova-servers, section 10; every other status has the key `computeFault`.
FAULT_KEYS = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    429: "overLimit",
    501: "notImplemented",
    503: "serviceUnavailable",
}
OTHER_FAULT_KEY = "computeFault"


def status_of(error: Exception) -> int | None:
    """Return the status for `error`; None for an internal error."""
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), None)
