"""The middleware of the compute API, which checks requests in Nova's order.

It finds the route, the microversion (contracts/nova-servers, section 2), the caller and the project in the address, and
calls the handler. It turns errors into faults, and adds the headers of request id and microversion to every answer.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import NamedTuple
from uuid import uuid4

import structlog
from starlette.datastructures import Headers
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from fleetlight.api.caller import Caller, Identity
from fleetlight.api.documented import ApiOperation, DocumentedRoute, Endpoint
from fleetlight.api.http.connection import ClientConnection, LookingAhead, address_of_client
from fleetlight.api.http.errors import (
    BadRequestError,
    DirectoryUnavailableError,
    ForbiddenError,
    IdentityServiceError,
    MicroversionSyntaxError,
    NoEventsError,
    TooManyOwnWatchesError,
    UnauthorizedError,
    UnsupportedMediaTypeError,
    UnsupportedMicroversionError,
    status_of,
)
from fleetlight.api.http.faults import REQUEST_ID_HEADERS, fault_of, no_such_route
from fleetlight.api.http.links import Links
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.http.request_metrics import name_project
from fleetlight.api.identity.faults import unauthorized
from fleetlight.api.limits.admission import WATCHES, ListAdmission, RateLimit, RequestAdmission, admission_of
from fleetlight.api.shared.policy import RULES
from fleetlight.api.shared.proof import TOKEN_HEADER
from fleetlight.cells.model import InstanceRow, RequestContext
from fleetlight.listing.consistency.read_your_writes import ReadYourWrites
from fleetlight.listing.consistency.tokens import ChangeToken
from fleetlight.resources.kept_errors import without_frames
from fleetlight.views.compute.view import NEWEST_MICROVERSION


class Microversion(NamedTuple):
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST = Microversion(2, 1)
NEWEST = Microversion(*NEWEST_MICROVERSION)
STANDARD_HEADER = "OpenStack-API-Version"
LEGACY_HEADER = "X-OpenStack-Nova-API-Version"
_SERVICE = "compute"
_VERSION = re.compile(r"([1-9][0-9]*)\.([1-9][0-9]*|0)")
# More digits than any version, and few enough for int().
_MAX_LENGTH = 100
EVENT_STREAM = "text/event-stream"

_log = structlog.get_logger(__name__)
_READING = frozenset({"GET", "HEAD"})
_PROJECT_ID = re.compile(r"[0-9a-f-]+")
_JSON_TYPES = frozenset({"application/json", "application/vnd.openstack.compute+json"})
# Media types that clients send with requests without a body, or with an unread one.
_TYPES_OF_NOTHING = _JSON_TYPES | {"text/plain"}


def negotiate(headers: Headers) -> Microversion:
    """Return the requested microversion; the oldest by default.

    Raises MicroversionSyntaxError, UnsupportedMicroversionError.
    """
    text = _standard(headers.getlist(STANDARD_HEADER))
    if text is None:
        text = _legacy(headers.getlist(LEGACY_HEADER))
    return OLDEST if text is None else parse_version(text)


def parse_version(text: str) -> Microversion:
    """Parse a microversion, or "latest".

    Raises MicroversionSyntaxError, UnsupportedMicroversionError.
    """
    if text == "latest":
        return NEWEST
    match = _VERSION.fullmatch(text)
    if match is None or len(text) > _MAX_LENGTH:
        raise MicroversionSyntaxError(text)
    version = Microversion(int(match[1]), int(match[2]))
    if not OLDEST <= version <= NEWEST:
        raise UnsupportedMicroversionError(text, str(OLDEST), str(NEWEST))
    return version


def response_headers(version: str) -> list[tuple[str, str]]:
    """Make the headers by which every answer names its microversion."""
    return [
        (STANDARD_HEADER, f"{_SERVICE} {version}"),
        (LEGACY_HEADER, version),
        ("Vary", STANDARD_HEADER),
        ("Vary", LEGACY_HEADER),
    ]


def _standard(values: Sequence[str]) -> str | None:
    """Return the last entry for our service, among entries for several services."""
    for entry in reversed(",".join(values).split(",")):
        words = entry.split(None, 1)
        if len(words) == 2 and words[0].lower() == _SERVICE:
            return words[1].strip()
    return None


def _legacy(values: Sequence[str]) -> str | None:
    """Return the last entry, even if empty, which is no valid version."""
    return ",".join(values).split(",")[-1].strip() if values else None


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request that has passed the middleware.

    minor: the microversion is 2.`minor`.
    authenticate: authenticates the caller again, for long answers.
    admission: the limits on the request's pages.
    writes: has the next lists of a project (or of a user without one) include a state of an instance.
    is_relaxed: the request came by the legacy endpoint `/v2`, where unknown keys of a body are ignored.
    request_id: the id in the answer's header, and of the instance actions that the request causes.
    """

    minor: int
    caller: Caller
    authenticate: Callable[[], Awaitable[Caller]]
    admission: RequestAdmission
    query: QueryString
    links: Links
    http: HttpRequest
    writes: ReadYourWrites
    is_relaxed: bool = False
    request_id: str = ""

    @property
    def wants_events(self) -> bool:
        """Whether the request accepts only a stream of events; no other media type selects an answer."""
        return self.http.headers.get("accept", "").partition(";")[0].strip().lower() == EVENT_STREAM

    @property
    def origin(self) -> RequestContext:
        """The context of this request, as the origin of a change."""
        return RequestContext(self.request_id, self.caller.user_id, self.caller.project_id)

    async def hand_out_token(self, *rows: InstanceRow) -> None:
        """Add tokens of these states of native instances to the answer, by which lists can be asked to include them.

        The next lists of the projects of caller and instances include them even without tokens.
        """
        self.http.state.token = " ".join(str(ChangeToken.of(row)) for row in rows)
        for row in rows:
            await self.writes.include(row, self.caller.reader)

    def authorize(self, rule: str) -> None:
        """Raise ForbiddenError, naming `rule` (a key of RULES), if the caller lacks the role that it demands."""
        if not self.caller.has_role(RULES[rule]):
            raise ForbiddenError(rule)


Handler = Callable[[ApiRequest], Awaitable[Response]]


class Middleware:
    """Makes endpoints out of handlers.

    link_prefix: `api.compute_link_prefix`. writes: see ApiRequest. admission: the limits on lists.
    """

    def __init__(
        self, identity: Identity, link_prefix: str | None, writes: ReadYourWrites, admission: ListAdmission
    ) -> None:
        self._identity = identity
        self._link_prefix = link_prefix
        self._writes = writes
        self._admission = admission

    def endpoint(self, handler: Handler, *, gives_events: bool = False) -> Endpoint:
        """Make the endpoint of `handler`. gives_events: whether it can also answer with a stream of events."""

        async def answer(http: HttpRequest) -> Response:
            async def respond(minor: int) -> Response:
                request = await self.request(http, minor)
                if request.wants_events and not gives_events:
                    raise NoEventsError
                return await handler(request)

            return await self.answer(http, respond)

        return answer

    def route(self, operation: ApiOperation, handler: Handler) -> DocumentedRoute:
        """Make the route of an operation that `handler` answers."""
        return DocumentedRoute(operation, self.endpoint(handler, gives_events=operation.events is not None))

    async def answer(self, http: HttpRequest, respond: Callable[[int], Awaitable[Response]]) -> Response:
        """Negotiate the microversion, call `respond` with its minor part, and turn errors into faults."""
        request_id = http.state.request_id = f"req-{uuid4()}"
        version_headers: list[tuple[str, str]] = []
        with structlog.contextvars.bound_contextvars(request_id=request_id, address=address_of_client(http.scope)):
            try:
                if is_legacy(http):
                    version = OLDEST
                else:
                    version = negotiate(http.headers)
                    version_headers = response_headers(str(version))
                response = await respond(version.minor)
            except UnsupportedMicroversionError as error:
                version_headers = response_headers(error.version)
                response = fault_of(error)
            except _UnknownAddressError:
                response = no_such_route()
            except UnauthorizedError as error:
                response = unauthorized(error, Links.of(http, self._link_prefix).root)
            except Exception as error:  # noqa: BLE001  # the edge: every failure becomes a fault
                _log_failure(error)
                http.state.failure = without_frames(error)
                response = fault_of(error, is_change=http.method not in _READING)
        identifiers = [(name, request_id) for name in REQUEST_ID_HEADERS]
        token = getattr(http.state, "token", None)
        if token is not None and response.status_code < HTTPStatus.BAD_REQUEST:
            response.headers.append(TOKEN_HEADER, token)
        limit = _rate_limit(http)
        for name, value in version_headers + identifiers + list(() if limit is None else limit.headers):
            response.headers.append(name, value)
        return response

    async def request(self, http: HttpRequest, minor: int) -> ApiRequest:
        """Authenticate the caller, and make the ApiRequest. For use within `answer`.

        Raises BadRequestError or UnsupportedMediaTypeError.
        """
        # While a password check waits, notice if the caller disconnects.
        receive = LookingAhead(http.receive)
        http = HttpRequest(http.scope, receive)
        connection = ClientConnection.of(http, receive)
        authenticate = partial(self._identity.authenticate, http.headers, connection)
        caller = await authenticate()
        name_project(http.scope, caller.project_id)
        admission = self._admission.of(caller, connection)
        http.state.admission = admission
        project_id = http.path_params.get("project_id")
        if project_id is not None and project_id != caller.project_id:
            if not _PROJECT_ID.fullmatch(project_id):
                raise _UnknownAddressError
            raise BadRequestError(f"Malformed request URL: URL's project_id '{project_id}' doesn't match Context's")
        content_type = http.headers.get("content-type", "").partition(";")[0].strip().lower()
        known_types = _TYPES_OF_NOTHING if http.method in {"GET", "HEAD"} else _JSON_TYPES
        if content_type and content_type not in known_types:
            raise UnsupportedMediaTypeError(content_type)
        is_novas = http.scope["path"].removeprefix(http.scope.get("root_path", "")).startswith("/v2")
        query = QueryString.parse(http.scope["query_string"], splits_at_semicolons=is_novas)
        is_relaxed = is_legacy(http)
        links = Links.of(http, self._link_prefix, project_id, "v2" if is_relaxed else "v2.1")
        return ApiRequest(
            minor,
            caller,
            authenticate,
            admission,
            query,
            links,
            http,
            self._writes,
            is_relaxed,
            http.state.request_id,
        )


def _rate_limit(http: HttpRequest) -> RateLimit | None:
    """Return the limit on a request, for the headers of its answer."""
    failure = getattr(http.state, "failure", None)
    if isinstance(failure, TooManyOwnWatchesError):
        return RateLimit(WATCHES, failure.limit, 0, failure.retry_after_s)
    given: RateLimit | None = getattr(http.state, "rate_limit", None)
    admission = admission_of(http.scope)
    return given if given is not None or admission is None else admission.rate_limit


class _UnknownAddressError(Exception):
    """The project's element in the address is no valid project."""


def is_legacy(http: HttpRequest) -> bool:
    """Whether a request came by `/v2`, which has microversion 2.1 regardless of headers, and no version headers."""
    path: str = http.scope["path"].removeprefix(http.scope.get("root_path", ""))
    return path == "/v2" or path.startswith("/v2/")


def _log_failure(error: Exception) -> None:
    if status_of(error) is None:
        _log.exception("request_failed")
    elif status_of(error) == 500:
        _log.error("request_failed", reason=str(error), cause=str(error.__cause__))
    elif isinstance(error, DirectoryUnavailableError | IdentityServiceError):
        _log.error("identity.unavailable", reason=error.reason)
