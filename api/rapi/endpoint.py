"""The middleware of the remote API, which checks a request in the order of contracts/ganeti-rapi, 1.

It checks the path and verb, the caller, its rights, the type of the body, its JSON, and then calls the handler.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

import structlog
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from fleetlight.api.caller import Caller
from fleetlight.api.http.connection import ClientConnection, LookingAhead, address_of_client
from fleetlight.api.http.errors import NotFoundError, status_of
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.http.request_metrics import name_route
from fleetlight.api.limits.admission import ListAdmission
from fleetlight.api.limits.large_bodies import MAX_PARTS_OF_CHANGE, CountedParts, decoded
from fleetlight.api.query.whole_results import QueryContext
from fleetlight.api.rapi.access import RapiAccess
from fleetlight.api.rapi.faults import RapiError, rapi_fault
from fleetlight.api.shared.proof import read_options
from fleetlight.listing.admission import OneItem
from fleetlight.listing.consistency.read_your_writes import ReadYourWrites
from fleetlight.listing.sources import CellReader
from fleetlight.resources.kept_errors import without_frames
from fleetlight.resources.malformed_json import MALFORMED_JSON

MAX_BODY_BYTES = 10 * 1024 * 1024
# A name may have any character; this matches paths in which special characters are still escaped.
NAME = r"[^/]+"
JOB = r"[0-9]{1,100}"

_log = structlog.get_logger(__name__)
_NOTHING = object()
_ADDRESS = re.compile(r"/(?:cells/[^/]*/)?2(?:/|\Z)|/version\Z")
_ABOVE = re.compile(r"/(?:(?:cells/[^/]*/)?2|version)")
# A variable part of the path of a resource.
_GROUP = re.compile(r"\(\?P<(\w+)>[^()]*\)")
_TOO_LARGE = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Request body too large")
_METHODS = ("GET", "PUT", "POST", "DELETE")


@dataclass(frozen=True, slots=True, kw_only=True)
class RapiRequest(QueryContext):
    """A checked request, the context of its queries.

    names: the variable parts of its path, unescaped. body: its decoded JSON; `has_body`: whether it has one.
    """

    query: QueryString
    names: Mapping[str, str]
    body: Any
    has_body: bool

    def with_body(self, body: Any) -> "RapiRequest":
        """Return the request with another body."""
        return replace(self, body=body, has_body=True)

    def for_one_item(self) -> "RapiRequest":
        """Return the request as one for a single item, which does not wait behind large lists."""
        return replace(self, fresh=replace(self.fresh, admission=OneItem(self.fresh.admission)))

    def flag(self, name: str) -> bool:
        """Whether a parameter is 1; 0 by default. Raises RapiError for other values."""
        texts = self.query.all(name)
        if not texts:
            return False
        try:
            return bool(int(texts[0]))
        except ValueError:
            raise RapiError(HTTPStatus.BAD_REQUEST, f"Invalid value for the '{name}' parameter") from None


Handler = Callable[[RapiRequest], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Verb:
    """One method of a resource. needed: rights of which the caller must have one (see `access`); empty: no login.

    max_parts: largest number of a body's parts (fleetlight.api.limits.large_bodies).
    """

    handler: Handler
    needed: frozenset[str]
    max_parts: int = MAX_PARTS_OF_CHANGE


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource. path: regular expression below `/2`, with a group for each variable part. verbs: by method.

    route: the path for metrics, with the names of the variable parts in braces.
    """

    path: re.Pattern[str]
    route: str
    verbs: Mapping[str, Verb]


def resource(path: str, verbs: Mapping[str, Verb]) -> Resource:
    """Make a resource. path: a regular expression."""
    return Resource(re.compile(path), _GROUP.sub(r"{\1}", path), verbs)


def is_rapi(path: str) -> bool:
    """Whether the remote API answers at this path, even if with an error."""
    return _ADDRESS.match(path) is not None


def unknown_address(method: str, path: str) -> Exception:
    """Make the error for an unknown path, or a method that no path has."""
    return _unsupported(method, path) if method not in _METHODS else NotFoundError(f"There is nothing at {path}")


class RapiEndpoint:
    """Answers every request below one address.

    resources: the first with the path and the verb counts. admission: the limits on lists.
    """

    def __init__(
        self,
        resources: Sequence[Resource],
        access: RapiAccess,
        cells: CellReader,
        writes: ReadYourWrites,
        admission: ListAdmission,
    ) -> None:
        self._resources = resources
        self._access = access
        self._cells = cells
        self._writes = writes
        self._admission = admission

    async def answer(self, http: HttpRequest) -> Response:
        """Answer a request; errors become answers, too."""
        request_id = http.state.request_id = f"req-{uuid4()}"
        with structlog.contextvars.bound_contextvars(request_id=request_id, address=address_of_client(http.scope)):
            try:
                return await self._answer(http)
            except Exception as error:  # noqa: BLE001  # the edge: every failure becomes a fault
                if not isinstance(error, RapiError) and status_of(error) is None:
                    _log.exception("request_failed")
                http.state.failure = without_frames(error)
                return rapi_fault(error)

    async def _answer(self, http: HttpRequest) -> Response:
        verb, names = self._verb(http)
        receive = LookingAhead(http.receive)
        http = HttpRequest(http.scope, receive)
        connection = ClientConnection.of(http, receive)
        login = self._access.require(await self._access.login(http, connection), verb.needed)
        admission = self._admission.of(login.caller, connection)
        http.state.admission = admission
        body, parts = await _body(http, verb.max_parts)
        query = QueryString.parse(http.scope["query_string"])
        fresh = await read_options(http.headers, login.caller, self._writes, admission)
        cell = http.path_params.get("cell")
        only = None if cell is None else await self._only(cell, login.caller)
        return await verb.handler(
            RapiRequest(
                login.caller,
                fresh,
                only,
                parts,
                query=query,
                names=names,
                body=None if body is _NOTHING else body,
                has_body=body is not _NOTHING,
            )
        )

    def _verb(self, http: HttpRequest) -> tuple[Verb, Mapping[str, str]]:
        # Match the raw path: in a decoded path a slash in a name looks like a separator.
        sent = http.scope["raw_path"].decode().removeprefix(http.scope.get("root_path", ""))
        path = "/".join(quote(unquote(part), safe="") for part in _ABOVE.sub("", sent, count=1).split("/"))
        if "%00" in path:  # no stored name can contain it
            raise NotFoundError(f"There is nothing at {http.url.path}")
        fitting = [(each, found) for each in self._resources if (found := each.path.fullmatch(path)) is not None]
        for each, found in fitting:
            if http.method in each.verbs:
                name_route(http.scope, each.route)
                return each.verbs[http.method], {name: unquote(text) for name, text in found.groupdict().items()}
        if fitting:
            raise _unsupported(http.method, http.url.path)
        raise NotFoundError(f"There is nothing at {http.url.path}")

    async def _only(self, name: str, caller: Caller) -> Collection[str]:
        """Return the uuid of the named cell. Raises NotFoundError, also for callers that are no administrators."""
        found = [cell.uuid for cell in await self._cells.cells() if cell.name == name and caller.is_admin]
        if not found:
            raise NotFoundError(f"There is no cell '{name}'")
        return found


def _unsupported(method: str, path: str) -> RapiError:
    return RapiError(HTTPStatus.NOT_IMPLEMENTED, f"Method {method} is unsupported for path {path}")


async def _body(http: HttpRequest, max_parts: int) -> tuple[Any, int]:
    """Read the body; returns its value, or _NOTHING, and the number of its parts.

    Raises RapiError, TooManyPartsError, TooManyListsError, TooManyBodiesError.
    """
    length = http.headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise RapiError(*_TOO_LARGE)
    pieces: list[bytes] = []
    size = 0
    counted = CountedParts(max_parts)
    try:
        async for piece in http.stream():
            counted.add(piece)
            size += len(piece)
            if size > MAX_BODY_BYTES:
                raise RapiError(*_TOO_LARGE)
            pieces.append(piece)
    except ClientDisconnect:
        raise RapiError(HTTPStatus.BAD_REQUEST, "The body ended before all of it had come.") from None
    if not size:
        return _NOTHING, 0
    if http.headers.get("content-type", "").lower() != "application/json":
        raise RapiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body must be of the type application/json")
    try:
        return await decoded(b"".join(pieces), counted.count), counted.count
    except MALFORMED_JSON:
        raise RapiError(HTTPStatus.BAD_REQUEST, "Unable to parse JSON data") from None
