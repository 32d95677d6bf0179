"""Strategy `basic`: HTTP basic authentication against a file in the form of Apache's htpasswd, with two more fields.

    name:hash:project:roles

hash: bcrypt (`htpasswd -B`) or argon2. project: the id of the user's only project. roles: a comma list of admin,
manager, member, reader. Empty lines and lines that begin with `#` are ignored. A malformed line lets no user in, and
the log names it.
"""

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from fleetlight.api.caller import ROLES, Caller
from fleetlight.api.http.connection import UNKNOWN, ClientConnection
from fleetlight.api.http.errors import BadRequestError, DirectoryUnavailableError, UnauthorizedError
from fleetlight.api.identity.browser import ENDED_CHALLENGE, TOKEN_HEADER, Account, BrowserLogin, Named
from fleetlight.api.identity.ended_sessions import SessionEnds
from fleetlight.api.identity.passwords import PasswordChecks, is_known_hash, name_and_password
from fleetlight.api.identity.refusals import telling_of_refusal
from fleetlight.api.identity.tokens.token import Token, new_audit_id, sign, signed_token
from fleetlight.api.identity.watched_file import WatchedFile
from fleetlight.api.limits.login_limit import LoginLimit
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND


class BasicSessions:
    """Sessions of browsers. lifetime_s: from the login on."""

    def __init__(self, lifetime_s: int, clock: Clock = system_clock) -> None:
        self._lifetime_us = lifetime_s * MICROSECONDS_PER_SECOND
        self._clock = clock
        self.ends = SessionEnds(self._lifetime_us, clock)

    def begin(self, name: str, hashed: str) -> str:
        """Make a new session of the user `name`, whose password has the hash `hashed`."""
        now = self._clock()
        token = Token(name, ("password",), None, now, now + self._lifetime_us, (new_audit_id(),))
        return f"{urlsafe_b64encode(name.encode()).decode()}.{sign(token, _key(hashed))}"

    async def is_good(self, session: str, hashed: str) -> bool:
        """Whether a session is valid now. hashed: hash of the user of `name_in`. Raises FleetUnreachableError."""
        token = signed_token(session.partition(".")[2], _key(hashed))
        if token is None or token.expires_at <= self._clock():
            return False
        return not await self.ends.has(token.user_id, session, token.issued_at)

    async def end(self, session: str) -> None:
        await self.ends.add(name_in(session), session)


def name_in(session: str) -> str:
    """Return the user's name in a session, unverified; empty if it has none."""
    try:
        return urlsafe_b64decode(session.partition(".")[0]).decode()
    except ValueError:
        return ""


def _key(hashed: str) -> str:
    return hmac.digest(b"session of a browser", hashed.encode(), hashlib.sha256).hex()


_log = structlog.get_logger(__name__)
_CHALLENGE = 'Basic realm="Fleetlight", charset="UTF-8"'
_MAX_REMEMBERED = 1000
_EXPECTED = (
    f"name:hash:project:roles, with a hash of bcrypt (htpasswd -B) or argon2, and roles out of {', '.join(ROLES)}"
)


@dataclass(frozen=True, slots=True)
class _User:
    caller: Caller
    hashed: str


@dataclass(frozen=True, slots=True)
class _Users:
    """The parsed file of users."""

    by_name: Mapping[str, _User]


class BasicIdentity:
    """The strategy. path: the file, which is read again when it changes. session_lifetime_s: of a browser's login."""

    logins: Sequence[str] = ("password",)

    def __init__(self, path: Path, session_lifetime_s: int = 3600, clock: Clock = system_clock) -> None:
        self._path = path
        self._file = WatchedFile(path, self._parse)
        self._key = secrets.token_bytes(32)
        self._passwords = PasswordChecks()
        self._limit = LoginLimit()
        # Logins found to be right, so that a request does not take as long as a login: the password's hash, by a digest
        # of name and password under a key of this process, from which no password can be found.
        self._right: dict[bytes, str] = {}
        self._sessions = BasicSessions(session_lifetime_s, clock)
        self.ends = self._sessions.ends

    async def authenticate(self, headers: Mapping[str, str], connection: ClientConnection = UNKNOWN) -> Caller:
        session = headers.get(TOKEN_HEADER)
        if session is not None and "Authorization" not in headers:
            return (await self._user_of_session(session)).caller
        name, password = name_and_password(headers.get("Authorization", ""), _CHALLENGE)
        return (await self._user_with(name, password, connection)).caller

    async def begin_session(self, login: BrowserLogin, connection: ClientConnection) -> str:
        if login.user is None or login.password is None:
            raise BadRequestError("A login has a user and a password here.")
        user = await self._user_with(login.user, login.password.get_secret_value(), connection)
        _require_project(user.caller, login.project)
        return self._sessions.begin(login.user, user.hashed)

    async def change_project(self, session: str, project: str) -> str:
        _require_project((await self._user_of_session(session)).caller, project)
        return session

    async def end_session(self, session: str) -> None:
        user = (await self._file.current()).by_name.get(name_in(session))
        # Only a valid session is recorded as ended, since invalid ones could fill the database.
        if user is not None and await self._sessions.is_good(session, user.hashed):
            await self._sessions.end(session)

    async def account(self, caller: Caller, headers: Mapping[str, str]) -> Account:
        project = Named(caller.project_id or "", caller.project_id or "")
        return Account(Named(caller.user_id, caller.user_id), project, [project])

    async def roles_of(self, user_id: str, project_id: str | None) -> frozenset[str] | None:
        """Return the roles of a login of the user in a project; None for a user who cannot log in.

        Raises DirectoryUnavailableError.
        """
        user = (await self._file.current()).by_name.get(user_id)
        return user.caller.roles if user is not None and user.caller.project_id == project_id else None

    async def _user_of_session(self, session: str) -> _User:
        """Find the user of a session. Raises UnauthorizedError for an invalid session, and FleetUnreachableError."""
        user = (await self._file.current()).by_name.get(name_in(session))
        if user is None or not await self._sessions.is_good(session, user.hashed):
            raise UnauthorizedError("the session has ended", ENDED_CHALLENGE)
        return user

    async def _user_with(self, name: str, password: str, connection: ClientConnection) -> _User:
        """Check a login. Raises UnauthorizedError for a wrong one, and TooManyLoginsError."""
        users = await self._file.current()
        user = users.by_name.get(name)
        digest = hmac.digest(self._key, f"{len(name)}:{name}:{password}".encode(), hashlib.sha256)
        if user is not None and self._right.get(digest) == user.hashed:
            return user
        async with telling_of_refusal(name), self._limit.attempt(name, connection):
            # A concurrent request may have verified the same login meanwhile.
            is_right = (user is not None and self._right.get(digest) == user.hashed) or (
                await self._passwords.is_password_of(None if user is None else user.hashed, password)
            )
            if user is None or not is_right:
                _log.warning("login_refused", reason="wrong user or password", user_id=None if user is None else name)
                raise UnauthorizedError("wrong user or password", _CHALLENGE)
        if len(self._right) >= _MAX_REMEMBERED:
            del self._right[next(iter(self._right))]
        self._right[digest] = user.hashed
        return user

    def check(self) -> None:
        """Raise DirectoryUnavailableError when the file cannot be read."""
        self._file.read()

    def _parse(self, content: bytes) -> _Users:
        """Parse the file. Raises DirectoryUnavailableError when it is not UTF-8."""
        try:
            users = _Users(dict(_parsed(self._path, content.decode())))
        except UnicodeDecodeError as error:
            raise DirectoryUnavailableError(self._path, f"it is no UTF-8: {error}") from error
        if not users.by_name:
            _log.warning("htpasswd.has_no_user", path=str(self._path), expected=_EXPECTED)
        return users


def _parsed(path: Path, text: str) -> list[tuple[str, _User]]:
    users = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, *rest = line.split(":")
        roles = frozenset(role.strip() for role in rest[2].split(",")) if len(rest) == 3 else frozenset[str]()
        if name and roles and roles <= set(ROLES) and rest[1] and is_known_hash(rest[0]):
            users.append((name, _User(Caller(name, rest[1], roles), rest[0])))
        else:
            _log.warning("htpasswd.line_ignored", path=str(path), line=number, expected=_EXPECTED)
    return users


def _require_project(caller: Caller, project: str | None) -> None:
    if project not in {None, caller.project_id}:
        raise UnauthorizedError("no role in the project", ENDED_CHALLENGE)
