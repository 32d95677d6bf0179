"""A client of a compute REST API, which reads the servers of all projects with an administrator's rights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from fleetlight.cells.errors import UpstreamError
from fleetlight.cells.upstream.credentials import Credentials
from fleetlight.cells.upstream.http import PassingError, UpstreamConnection
from fleetlight.cells.upstream.timed_requests import HttpAnswer
from fleetlight.resources.malformed_json import MALFORMED_JSON

Query = Sequence[tuple[str, str]]

_ATTEMPTS = 6
_RETRY_WAIT_MAX_S = 10.0
_OK, _BAD_REQUEST, _UNAUTHORIZED, _TOO_MANY_REQUESTS, _FIRST_SERVER_ERROR = 200, 400, 401, 429, 500
_NOT_FOUND, _NOT_ACCEPTABLE = 404, 406
_HYPERVISORS_AT_ONCE = 500
_SHOWN = 200
_COMPLETE = "fleetlight-complete"
_MICROVERSION = "x-openstack-nova-api-version"
_TELLS_OF_CELLS_SINCE = 69
_HEADERS = {
    "Accept": "application/json",
    "OpenStack-API-Version": "compute latest",
    "X-OpenStack-Nova-API-Version": "latest",
    # Another Fleetlight would answer from its index, which may be behind the moment that rows count as read.
    "Fleetlight-Consistency": "strong",
}
# The last microversion in which hypervisors show their sizes (contracts/nova-rest, 4.6).
_WITH_SIZES = {"OpenStack-API-Version": "compute 2.87", "X-OpenStack-Nova-API-Version": "2.87"}
_decode = msgspec.json.Decoder().decode


class MarkerGoneError(UpstreamError):
    """The server after which a page should begin is no longer listed."""


@dataclass(frozen=True, slots=True)
class ServerPage:
    """servers: as the API shows them. has_more: whether another page follows.

    is_proven: the API promises that the page is complete. minor: of the answer's microversion; 0 if it names none.
    """

    servers: Sequence[Any]
    has_more: bool
    is_proven: bool = False
    minor: int = 0


class ComputeApi:
    """The client; for one thread at a time. Every call raises UpstreamError.

    url: with its version, as in https://nova.example.org:8774/v2.1.
    attempts: the most requests for a page while the API does not answer, with growing waits in between.
    """

    def __init__(
        self,
        url: str,
        credentials: Credentials,
        *,
        timeout_s: float = 60.0,
        ca_certs: Path | None = None,
        attempts: int = _ATTEMPTS,
    ) -> None:
        self._connection = UpstreamConnection(url, timeout_s=timeout_s, ca_certs=ca_certs)
        self._credentials = credentials
        self._attempts = attempts

    def servers(
        self, query: Query, *, limit: int, after: str | None = None, deadline_s: float | None = None
    ) -> ServerPage:
        """A page of the servers of all projects, at most `limit`. Raises MarkerGoneError.

        after: id of the last server of the previous page. deadline_s: on the monotonic clock.
        """
        marker = [("marker", after)] if after else []
        target = f"/servers/detail?{urlencode([('all_tenants', '1'), ('limit', str(limit)), *query, *marker])}"
        return self._retrying(self._page, target, after, deadline_s)

    def has_cells_down(self, *, deadline_s: float | None = None) -> bool | None:
        """Whether a cell of the API's own is down, so that its lists lack that cell's servers; None if the API is too
        old to tell.

        Nova tells from microversion 2.69 on, in lists without filter and limit, whose first items then have no name
        (contracts/nova-servers, 12). Such a list has at most one page, without details.
        """
        page = self._retrying(self._page, "/servers?all_tenants=1", None, deadline_s)
        if any("name" not in server for server in page.servers):
            return True
        return False if page.minor >= _TELLS_OF_CELLS_SINCE else None

    def has(self, uuid: str, *, deadline_s: float | None = None) -> bool:
        """Whether the API has a live server, perhaps in a cell that is down. Raises UpstreamError."""
        answer = self._get(f"/servers/{quote(uuid, safe='')}", deadline_s)
        if answer.status not in (_OK, _NOT_FOUND):
            raise UpstreamError(f"{self._connection.name} answers with status {answer.status}")
        return answer.status == _OK

    def hypervisors(self, *, deadline_s: float | None = None) -> Sequence[Any]:
        """All hypervisors, with their sizes and the servers on each. deadline_s: on the monotonic clock."""
        found: list[Any] = []
        more: Query = ()
        while True:
            query = urlencode([("with_servers", "true"), ("limit", str(_HYPERVISORS_AT_ONCE)), *more])
            page = self._document(f"/os-hypervisors/detail?{query}", "hypervisors", deadline_s)
            found += page["hypervisors"]
            if not page.get("hypervisors_links") or not page["hypervisors"]:
                return found
            more = [("marker", str(page["hypervisors"][-1]["id"]))]

    def compute_services(self, *, deadline_s: float | None = None) -> Sequence[Any]:
        """The service of each host; an item without details stands for a cell of the API's own that is down."""
        services: Sequence[Any] = self._document("/os-services?binary=nova-compute", "services", deadline_s)["services"]
        return services

    def close(self) -> None:
        self._connection.close()

    @property
    def _retrying(self) -> Retrying:
        return Retrying(
            retry=retry_if_exception_type(PassingError),
            wait=wait_random_exponential(max=_RETRY_WAIT_MAX_S),
            stop=stop_after_attempt(self._attempts),
            reraise=True,
        )

    def _page(self, target: str, after: str | None, deadline_s: float | None) -> ServerPage:
        answer = self._get(target, deadline_s)
        status, name = answer.status, self._connection.name
        if status == _BAD_REQUEST and after is not None and b"marker" in answer.body.lower():
            raise MarkerGoneError(f"{name}: there is no server {after} any more")
        if status == _TOO_MANY_REQUESTS or status >= _FIRST_SERVER_ERROR:
            raise PassingError(f"{name} answers with status {status}")
        if status != _OK:
            shown = answer.body[:_SHOWN].decode(errors="replace")
            raise UpstreamError(f"{name} refuses to list servers: status {status}, {shown}")
        try:
            page = _decode(answer.body)
            servers, links = page["servers"], page.get("servers_links", [])
        except (*MALFORMED_JSON, TypeError, KeyError, AttributeError) as error:
            raise UpstreamError(f"{name} does not answer as a compute API does") from error
        if not isinstance(servers, list):
            raise UpstreamError(f"{name} does not answer as a compute API does")
        if answer.headers.get(_COMPLETE) == "false":
            # Another Fleetlight: rows that it lacks must not count as missing.
            raise UpstreamError(f"{name} says that its answer is not complete")
        is_proven = answer.headers.get(_COMPLETE) == "true"
        minor = answer.headers.get(_MICROVERSION, "").removeprefix("2.")
        return ServerPage(
            servers,
            has_more=bool(servers) and bool(links),
            is_proven=is_proven,
            minor=int(minor) if minor.isdecimal() else 0,
        )

    def _document(self, target: str, key: str, deadline_s: float | None) -> Any:
        """The JSON object of an answer, with a list of objects under `key`."""
        answer = self._get(target, deadline_s, _WITH_SIZES)
        if answer.status == _NOT_ACCEPTABLE:
            # The API's newest microversion is older, and shows sizes, too.
            answer = self._get(target, deadline_s)
        name = self._connection.name
        if answer.status != _OK:
            shown = answer.body[:_SHOWN].decode(errors="replace")
            raise UpstreamError(f"{name} refuses to list {key}: status {answer.status}, {shown}")
        try:
            document = _decode(answer.body)
            is_as_told = all(isinstance(item, dict) for item in document[key])
        except (*MALFORMED_JSON, TypeError, KeyError) as error:
            raise UpstreamError(f"{name} does not list {key} as a compute API does") from error
        if not is_as_told:
            raise UpstreamError(f"{name} does not list {key} as a compute API does")
        if answer.headers.get(_COMPLETE) == "false":
            raise UpstreamError(f"{name} says that its answer is not complete")
        return document

    def _get(self, target: str, deadline_s: float | None, more: Mapping[str, str] = MappingProxyType({})) -> HttpAnswer:
        headers = {**_HEADERS, **more, **self._credentials.headers(deadline_s)}
        answer = self._connection.get(target, headers, deadline_s=deadline_s)
        if answer.status == _UNAUTHORIZED and self._credentials.renew(headers):
            headers |= self._credentials.headers(deadline_s)
            answer = self._connection.get(target, headers, deadline_s=deadline_s)
        return answer
