"""Our account at the API of other software: an administrator's, by a token, a password, or a login at Keystone."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from fleetlight.cells.errors import UpstreamError

TOKEN = "X-Auth-Token"  # noqa: S105  # the name of a header


class Credentials(Protocol):
    """Gives requests their headers of authentication; thread-safe. Every call raises UpstreamError."""

    def headers(self, deadline_s: float | None) -> Mapping[str, str]: ...

    def renew(self, refused: Mapping[str, str]) -> bool:
        """Get other headers after the API refused these; False if there are none."""
        ...


class Fixed:
    """Credentials whose headers never change."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    @classmethod
    def token(cls, token: str) -> "Fixed":
        return cls({TOKEN: token})

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
    """A token in a file that another program keeps up to date."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def headers(self, _deadline_s: float | None) -> Mapping[str, str]:
        return {TOKEN: read_secret(self._path)}

    def renew(self, refused: Mapping[str, str]) -> bool:
        return read_secret(self._path) != refused.get(TOKEN)


def read_secret(path: Path) -> str:
    """The content of a file, without its last line break. Raises UpstreamError if it is empty or unreadable."""
    try:
        secret = path.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise UpstreamError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UpstreamError(f"{path} is not UTF-8 text") from error
    if not secret:
        raise UpstreamError(f"{path} is empty")
    return secret
