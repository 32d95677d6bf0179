"""A compute REST API as a client sees it: the servers of everybody, page by page, with an administrator's rights."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from cells.errors import UpstreamError
from cells.upstream.credentials import Credentials
from cells.upstream.http import Answer, Connection, PassingError

Query = Sequence[tuple[str, str]]

_ATTEMPTS = 6
_RETRY_WAIT_MAX_S = 10.0
_OK, _BAD_REQUEST, _UNAUTHORIZED, _TOO_MANY_REQUESTS, _FIRST_SERVER_ERROR = 200, 400, 401, 429, 500
_NOT_FOUND = 404
_SHOWN = 200
_COMPLETE = "fleetlight-complete"
_HEADERS = {
    "Accept": "application/json",
    "OpenStack-API-Version": "compute latest",
    "X-OpenStack-Nova-API-Version": "latest",
    # Another fleet of ours would answer from its index, and be some seconds behind of what rows are taken to be.
    "Fleetlight-Consistency": "strong",
}
_decode = msgspec.json.Decoder().decode


class MarkerGoneError(UpstreamError):
    """The server that a page was to begin after is not listed any more."""


@dataclass(frozen=True, slots=True)
class ServerPage:
    """servers: as the API shows them. has_more: whether another page follows.

    is_proven: the API says that it lacks nothing.
    """

    servers: Sequence[Any]
    has_more: bool
    is_proven: bool = False


class ComputeApi:
    """The client; belongs to one thread at a time. Every call raises UpstreamError.

    url: with its version, as in https://nova.example.org:8774/v2.1.
    attempts: how often a page is asked for while the API does not answer, with growing waits in between.
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
        self._connection = Connection(url, timeout_s=timeout_s, ca_certs=ca_certs)
        self._credentials = credentials
        self._attempts = attempts

    def servers(
        self, query: Query, *, limit: int, after: str | None = None, deadline_s: float | None = None
    ) -> ServerPage:
        """A page of the servers of all projects, at most `limit`; raises MarkerGoneError.

        after: the id of the last server of the page before. deadline_s: on the monotonic clock.
        """
        marker = [("marker", after)] if after else []
        target = f"/servers/detail?{urlencode([('all_tenants', '1'), ('limit', str(limit)), *query, *marker])}"
        return self._retrying(self._page, target, after, deadline_s)

    def has_cells_down(self, *, deadline_s: float | None = None) -> bool:
        """Whether the API cannot ask a cell of its own now, and so lacks that cell's servers in its lists.

        Nova says so from microversion 2.69 on, and only where everything is listed, without a limit: first come items
        without a name (contracts/nova-servers, 12). It shows no more than a page, and servers without their details.
        """
        page = self._retrying(self._page, "/servers?all_tenants=1", None, deadline_s)
        return any("name" not in server for server in page.servers)

    def has(self, uuid: str, *, deadline_s: float | None = None) -> bool:
        """Whether the API knows a server that is not deleted, if only that it is in a cell which it cannot ask."""
        answer = self._get(f"/servers/{quote(uuid, safe='')}", deadline_s)
        if answer.status not in (_OK, _NOT_FOUND):
            raise UpstreamError(f"{self._connection.name} answers with status {answer.status}")
        return answer.status == _OK

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
        except (msgspec.MsgspecError, TypeError, KeyError, AttributeError) as error:
            raise UpstreamError(f"{name} does not answer as a compute API does") from error
        if not isinstance(servers, list):
            raise UpstreamError(f"{name} does not answer as a compute API does")
        if answer.headers.get(_COMPLETE) == "false":
            # Another fleet of ours: what it lacks must not pass for what there is not.
            raise UpstreamError(f"{name} says that its answer is not complete")
        is_proven = answer.headers.get(_COMPLETE) == "true"
        return ServerPage(servers, has_more=bool(servers) and bool(links), is_proven=is_proven)

    def _get(self, target: str, deadline_s: float | None) -> Answer:
        headers = {**_HEADERS, **self._credentials.headers(deadline_s)}
        answer = self._connection.get(target, headers, deadline_s=deadline_s)
        if answer.status == _UNAUTHORIZED and self._credentials.renew(headers):
            headers |= self._credentials.headers(deadline_s)
            answer = self._connection.get(target, headers, deadline_s=deadline_s)
        return answer
