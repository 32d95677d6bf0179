"""Who we are at the API of other software: an administrator, by a token, a password, or a login at Keystone."""

import base64
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import msgspec

from cells.errors import UpstreamError
from cells.kinds.nova_api.http import Connection, PassingError

_TOKEN = "X-Auth-Token"  # noqa: S105  # the name of a header
_CREATED, _FIRST_SERVER_ERROR = 201, 500


class Credentials(Protocol):
    """What a request is signed with; may be used by several threads. Every call raises UpstreamError."""

    def headers(self, deadline_s: float | None) -> Mapping[str, str]: ...

    def renew(self, refused: Mapping[str, str]) -> bool:
        """After headers were refused: whether others are there, or can be had."""
        ...


class Fixed:
    """The same headers for ever."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    @classmethod
    def token(cls, token: str) -> "Fixed":
        return cls({_TOKEN: token})

    @classmethod
    def password(cls, username: str, password: str) -> "Fixed":
        """HTTP basic authentication."""
        pair = base64.b64encode(f"{username}:{password}".encode()).decode()
        return cls({"Authorization": f"Basic {pair}"})

    def headers(self, _deadline_s: float | None) -> Mapping[str, str]:
        return self._headers

    def renew(self, refused: Mapping[str, str]) -> bool:
        return False


class TokenFile:
    """A token in a file that somebody else keeps up to date."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def headers(self, _deadline_s: float | None) -> Mapping[str, str]:
        return {_TOKEN: read_secret(self._path)}

    def renew(self, refused: Mapping[str, str]) -> bool:
        return read_secret(self._path) != refused.get(_TOKEN)


class KeystoneLogin:
    """A token from Keystone's v3 API, got when it is needed and again when it is refused.

    auth: the object `auth` of the request (contracts/nova-rest, 5.2).
    """

    def __init__(self, auth_url: str, auth: Mapping[str, Any], *, timeout_s: float, ca_certs: Path | None) -> None:
        version = "" if auth_url.rstrip("/").endswith("/v3") else "/v3"
        self._connection = Connection(auth_url.rstrip("/") + version, timeout_s=timeout_s, ca_certs=ca_certs)
        self._body = msgspec.json.encode({"auth": auth})
        self._mutex = Lock()
        self._known: str | None = None

    def headers(self, deadline_s: float | None) -> Mapping[str, str]:
        with self._mutex:
            if self._known is None:
                self._known = self._log_in(deadline_s)
            return {_TOKEN: self._known}

    def renew(self, refused: Mapping[str, str]) -> bool:
        with self._mutex:
            if refused.get(_TOKEN) == self._known:
                self._known = None
            return True

    def _log_in(self, deadline_s: float | None) -> str:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        try:
            answer = self._connection.request("POST", "/auth/tokens", headers, self._body, deadline_s=deadline_s)
        finally:
            # The next login is hours away.
            self._connection.close()
        if answer.status >= _FIRST_SERVER_ERROR:
            raise PassingError(f"{self._connection.name} answers with status {answer.status}")
        token = answer.headers.get("x-subject-token")
        if answer.status != _CREATED or not token:
            raise UpstreamError(f"{self._connection.name} refuses the login: status {answer.status}")
        return token


def read_secret(path: Path) -> str:
    """What a file holds, without the line break at the end; raises UpstreamError when that is nothing."""
    try:
        secret = path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise UpstreamError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UpstreamError(f"{path} is not UTF-8 text") from error
    if not secret:
        raise UpstreamError(f"{path} is empty")
    return secret
