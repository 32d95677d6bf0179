"""What every request of the remote API goes through, in the order of contracts/ganeti-rapi, 1.

Path and verb, the caller, what the caller may do, the type of the body, its JSON, then the handler.
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
from fleetlight.api.shared.proof import ReadOptions, read_options
from fleetlight.listing.admission import OneItem
from fleetlight.listing.consistency.read_your_writes import ReadYourWrites
from fleetlight.listing.sources import CellReader
from fleetlight.resources.kept_errors import without_frames
from fleetlight.resources.malformed_json import MALFORMED_JSON

MAX_BODY_BYTES = 10 * 1024 * 1024
# A name may have any character; those that mean something in an address are escaped where this is matched.
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


@dataclass(frozen=True, slots=True)
class RapiRequest:
    """A request that may be handled.

    names: the variable parts of its path, without escapes. body: what its JSON says; `has_body` is whether there was
    any, and `parts` how many it has (fleetlight.api.limits.large_bodies). only: the uuids of the cells that it is
    about; None for the whole fleet.
    """

    caller: Caller
    query: QueryString
    names: Mapping[str, str]
    body: Any
    has_body: bool
    fresh: ReadOptions
    only: Collection[str] | None
    parts: int = 0

    def with_body(self, body: Any) -> "RapiRequest":
        """The same request with another body."""
        return replace(self, body=body, has_body=True)

    def for_one_item(self) -> "RapiRequest":
        """The same request, of which only one item is wanted: it does not wait behind large lists."""
        return replace(self, fresh=replace(self.fresh, admission=OneItem(self.fresh.admission)))

    @property
    def asking(self) -> QueryContext:
        """What every question of this request asks for."""
        return QueryContext(self.caller, self.fresh, self.only, self.parts)

    def flag(self, name: str) -> bool:
        """A parameter that is 1 or 0; 0 without it. Raises RapiError."""
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
    """needed: what the caller must have one of (fleetlight.api.rapi.access); nothing: the caller may be unknown.

    max_parts: how many parts a body may have (fleetlight.api.limits.large_bodies).
    """

    handler: Handler
    needed: frozenset[str]
    max_parts: int = MAX_PARTS_OF_CHANGE


@dataclass(frozen=True, slots=True)
class Resource:
    """path: below `/2`, a regular expression with a group for each variable part. verbs: by their methods."""

    path: re.Pattern[str]
    verbs: Mapping[str, Verb]


def resource(path: str, verbs: Mapping[str, Verb]) -> Resource:
    """path: a regular expression."""
    return Resource(re.compile(path), verbs)


def is_rapi(path: str) -> bool:
    """Whether the remote API answers at this path, be it with an error."""
    return _ADDRESS.match(path) is not None


def unknown_address(method: str, path: str) -> Exception:
    """The error for a path of which nothing is known, or for a method that no path knows."""
    return _unsupported(method, path) if method not in _METHODS else NotFoundError(f"There is nothing at {path}")


class RapiEndpoint:
    """Answers everything below one address.

    resources: the first whose path fits, and that has the verb, counts. admission: of lists. timeout_s: what one cell
    may cost.
    """

    def __init__(
        self,
        resources: Sequence[Resource],
        access: RapiAccess,
        cells: CellReader,
        writes: ReadYourWrites,
        admission: ListAdmission,
        *,
        timeout_s: float,
    ) -> None:
        self._resources = resources
        self._access = access
        self._cells = cells
        self._writes = writes
        self._admission = admission
        self._timeout_s = timeout_s

    async def answer(self, http: HttpRequest) -> Response:
        """The answer to any request; what goes wrong is one too."""
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
        fresh = await read_options(http.headers, login.caller, self._writes, self._timeout_s, admission)
        cell = http.path_params.get("cell")
        only = None if cell is None else await self._only(cell, login.caller)
        return await verb.handler(
            RapiRequest(
                login.caller, query, names, None if body is _NOTHING else body, body is not _NOTHING, fresh, only, parts
            )
        )

    def _verb(self, http: HttpRequest) -> tuple[Verb, Mapping[str, str]]:
        # As it was sent, with every part escaped: in a decoded path a slash of a name is told from no other.
        sent = http.scope["raw_path"].decode().removeprefix(http.scope.get("root_path", ""))
        path = "/".join(quote(unquote(part), safe="") for part in _ABOVE.sub("", sent, count=1).split("/"))
        if "%00" in path:  # nothing that is stored can be called so
            raise NotFoundError(f"There is nothing at {http.url.path}")
        fitting = [(each, found) for each in self._resources if (found := each.path.fullmatch(path)) is not None]
        for each, found in fitting:
            if http.method in each.verbs:
                name_route(http.scope, _GROUP.sub(r"{\1}", each.path.pattern))
                return each.verbs[http.method], {name: unquote(text) for name, text in found.groupdict().items()}
        if fitting:
            raise _unsupported(http.method, http.url.path)
        raise NotFoundError(f"There is nothing at {http.url.path}")

    async def _only(self, name: str, caller: Caller) -> Collection[str]:
        """Others than administrators learn nothing of cells, not even that there is one."""
        found = [cell.uuid for cell in await self._cells.cells() if cell.name == name and caller.is_admin]
        if not found:
            raise NotFoundError(f"There is no cell '{name}'")
        return found


def _unsupported(method: str, path: str) -> RapiError:
    return RapiError(HTTPStatus.NOT_IMPLEMENTED, f"Method {method} is unsupported for path {path}")


async def _body(http: HttpRequest, max_parts: int) -> tuple[Any, int]:
    """What the body says, or _NOTHING, and how many parts it has.

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
