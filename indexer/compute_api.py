"""A compute REST API as a client sees it: the servers of everybody, page by page, with the rights of an administrator.

Redirects are not followed: the credentials are for one address.
"""

import base64
import http.client
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlencode, urlsplit

import msgspec
from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from indexer.errors import UpstreamError

_ATTEMPTS = 6
_RETRY_WAIT_MAX_S = 10.0
_OK, _BAD_REQUEST, _TOO_MANY_REQUESTS, _FIRST_SERVER_ERROR = 200, 400, 429, 500
_SHOWN = 200
_VERSION = "OpenStack-API-Version"
_decode = msgspec.json.Decoder().decode


class UpstreamSettings(BaseModel):
    """The compute API that `fleetlight index sync --source api` reads, and who we are there: an administrator.

    url: with its version, as in https://nova.example.org:8774/v2.1. token: for X-Auth-Token.
    page_size: servers that are asked for at once; the other side may give fewer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str | None = None
    token: SecretStr | None = None
    username: str | None = None
    password: SecretStr | None = None
    ca_certs: Path | None = None
    timeout_s: Annotated[float, Field(gt=0)] = 60.0
    page_size: Annotated[int, Field(ge=1, le=10_000)] = 1000

    @model_validator(mode="after")
    def _one_way_to_authenticate(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password belong together: set both or neither")
        if self.token is not None and self.username is not None:
            raise ValueError("set either token or username and password, not both")
        return self


class MarkerGoneError(UpstreamError):
    """The server that a page was to begin after is not listed any more."""


class _PassingError(UpstreamError):
    """The same request may succeed later."""


class ComputeApi:
    """The client; belongs to one thread. Every call raises UpstreamError. url: as in UpstreamSettings."""

    def __init__(self, url: str, settings: UpstreamSettings) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise UpstreamError("upstream.url must be like https://nova.example.org:8774/v2.1")
        self._name = f"{parts.scheme}://{parts.netloc}{parts.path}"
        self._path = parts.path.rstrip("/")
        self._page_size = settings.page_size
        self._headers = {
            "Accept": "application/json",
            _VERSION: "compute latest",
            "X-OpenStack-Nova-API-Version": "latest",
            **_credentials(settings),
        }
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=settings.ca_certs and str(settings.ca_certs))
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=settings.timeout_s, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=settings.timeout_s)

    def servers(self, *, deleted: bool, after: str | None) -> Sequence[Any]:
        """The next page in the order of uuids, empty at the end; raises MarkerGoneError.

        after: the id of the last server of the page before.
        """
        query = {"all_tenants": "1", "limit": str(self._page_size), "sort_key": "uuid", "sort_dir": "asc"}
        query |= {"deleted": "True"} if deleted else {}
        query |= {"marker": after} if after else {}
        retrying = Retrying(
            retry=retry_if_exception_type(_PassingError),
            wait=wait_random_exponential(max=_RETRY_WAIT_MAX_S),
            stop=stop_after_attempt(_ATTEMPTS),
            reraise=True,
        )
        return retrying(self._page, f"{self._path}/servers/detail?{urlencode(query)}", after)

    def close(self) -> None:
        self._connection.close()

    def _page(self, path: str, after: str | None) -> Sequence[Any]:
        status, body = self._get(path)
        if status == _BAD_REQUEST and after is not None and b"marker" in body.lower():
            raise MarkerGoneError(f"{self._name}: there is no server {after} any more")
        if status == _TOO_MANY_REQUESTS or status >= _FIRST_SERVER_ERROR:
            raise _PassingError(f"{self._name} answers with status {status}")
        if status != _OK:
            shown = body[:_SHOWN].decode(errors="replace")
            raise UpstreamError(f"{self._name} refuses to list servers: status {status}, {shown}")
        try:
            servers = _decode(body)["servers"]
        except (msgspec.MsgspecError, TypeError, KeyError) as error:
            raise UpstreamError(f"{self._name} does not answer as a compute API does") from error
        if not isinstance(servers, list):
            raise UpstreamError(f"{self._name} does not answer as a compute API does")
        return servers

    def _get(self, path: str) -> tuple[int, bytes]:
        try:
            self._connection.request("GET", path, headers=self._headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            # Whatever is left of that answer must not be taken for the next one.
            self._connection.close()
            raise _PassingError(f"{self._name} cannot be reached: {str(error) or type(error).__name__}") from error


def _credentials(settings: UpstreamSettings) -> dict[str, str]:
    if settings.token is not None:
        return {"X-Auth-Token": settings.token.get_secret_value()}
    if settings.username is not None and settings.password is not None:
        pair = f"{settings.username}:{settings.password.get_secret_value()}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}
