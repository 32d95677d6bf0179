"""The users of the remote API, from a file in Ganeti's form (contracts/ganeti-rapi, 3).

    name password [read,write]

password: plain, or `{HA1}` and the hexadecimal MD5 of `name:Ganeti Remote API:password`. Empty lines and lines that
begin with `#` are ignored; a line with fewer than two words lets no user in, and the log names it.
"""

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog
from pydantic import SecretStr

from fleetlight.api.http.errors import DirectoryUnavailableError
from fleetlight.api.identity.watched_file import WatchedFile

REALM = "Ganeti Remote API"
READ, WRITE = "read", "write"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RapiUser:
    """A user. levels: its rights, `read` and `write`; others have no effect."""

    name: str
    password: SecretStr
    levels: frozenset[str]

    def has_password(self, password: str) -> bool:
        """Whether this is the password; never for an unknown scheme."""
        known = self.password.get_secret_value()
        scheme, brace, rest = (
            known.removeprefix("{").partition("}") if known.startswith("{") else ("CLEARTEXT", "}", known)
        )
        match scheme.upper() if brace else "":
            case "CLEARTEXT":
                return _equal(rest, password)
            case "HA1":
                text = f"{self.name}:{REALM}:{password}"
                return _equal(rest.lower(), hashlib.md5(text.encode(), usedforsecurity=False).hexdigest())
        return False


class RapiUsers:
    """The users. path: the file, read again when it changes. While it is missing there are no users."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = WatchedFile(path, self._parse)
        self._known: Mapping[str, RapiUser] = {}

    async def user(self, name: str) -> RapiUser | None:
        """Return the user of this name, or None."""
        try:
            self._known = await self._file.current()
        except DirectoryUnavailableError as error:
            if not self._path.exists():
                self._known = {}
            _log.warning("rapi_users.unreadable", path=str(self._path), reason=error.reason)
        return self._known.get(name)

    def _parse(self, content: bytes) -> Mapping[str, RapiUser]:
        """Parse the file. Raises DirectoryUnavailableError; the previous users stay then."""
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise DirectoryUnavailableError(self._path, f"it is no UTF-8: {error}") from error
        return {user.name: user for user in self._users(text)}

    def _users(self, text: str) -> Iterator[RapiUser]:
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, *rest = line.split(None, 2)
            if not rest:
                _log.warning(
                    "rapi_users.line_ignored", path=str(self._path), line=number, expected="name password [read,write]"
                )
                continue
            levels = frozenset(level.strip() for level in rest[1].split(",")) if len(rest) > 1 else frozenset[str]()
            yield RapiUser(name, SecretStr(rest[0]), levels)


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
