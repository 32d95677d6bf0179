"""Callers of the remote API and their rights (contracts/ganeti-rapi, 3).

A caller logs in as a user of the RAPI users file, and sees the whole fleet, or of the strategy of identity, and sees
the same as on other faces. A caller without a name sees no instances, except with the strategy `none`.
"""

from base64 import b64decode
from collections.abc import Collection
from dataclasses import dataclass
from http import HTTPStatus

from starlette.requests import Request as HttpRequest

from fleetlight.api.caller import Caller, Identity
from fleetlight.api.http.connection import ClientConnection
from fleetlight.api.http.errors import UnauthorizedError
from fleetlight.api.identity.none import NoIdentity
from fleetlight.api.identity.openid.strategy import embedded_service
from fleetlight.api.identity.refusals import telling_of_refusal
from fleetlight.api.limits.login_limit import LoginLimit
from fleetlight.api.rapi.faults import RapiError
from fleetlight.api.rapi.users import READ, WRITE, RapiUsers

ANYBODY: frozenset[str] = frozenset()
"""The rights for resources without information about instances."""
A_USER = frozenset({"user"})
READERS = frozenset({READ, WRITE})
WRITERS = frozenset({WRITE})
OPERATORS = frozenset({"operate"})
"""The rights for changes: to write, and to see the whole fleet."""

_LEVELS = {"reader": READ, "member": WRITE}
_TOKEN_HEADER = "X-Auth-Token"  # noqa: S105  # the name of a header


@dataclass(frozen=True, slots=True)
class RapiLogin:
    """A login. caller: decides what it sees. levels: the user's rights, of A_USER, READERS, WRITERS, OPERATORS."""

    caller: Caller
    levels: Collection[str]


class RapiAccess:
    """Authenticates callers. users: None without a users file. limit: on logins of its users."""

    def __init__(self, identity: Identity, users: RapiUsers | None, limit: LoginLimit) -> None:
        self._identity = identity
        self._users = users
        self._limit = limit

    async def login(self, http: HttpRequest, connection: ClientConnection) -> RapiLogin | None:
        """Authenticate a request; None without a name. Raises UnauthorizedError, TooManyLoginsError, RapiError."""
        header = http.headers.get("Authorization")
        if header is None:
            if isinstance(self._identity, NoIdentity) or _TOKEN_HEADER in http.headers:
                return _of(await self._identity.authenticate(http.headers, connection))
            return None
        name, password = _name_and_password(header)
        user = None if self._users is None else await self._users.user(name)
        # With the strategy `none`, only the users file knows names.
        if user is not None or (self._users is not None and isinstance(self._identity, NoIdentity)):
            async with telling_of_refusal(name), self._limit.attempt(name, connection):
                if user is None or not user.has_password(password):
                    raise UnauthorizedError("wrong user or password")
            operates = OPERATORS if user.levels & WRITERS else ANYBODY
            return RapiLogin(Caller(name, None, frozenset({"admin"})), A_USER | user.levels | operates)
        service = embedded_service(self._identity)
        if service is not None:
            return _of(await service.log_in(name, password, connection))
        return _of(await self._identity.authenticate(http.headers, connection))

    def require(self, login: RapiLogin | None, needed: frozenset[str]) -> RapiLogin:
        """Raise UnauthorizedError if a needed login is missing, and RapiError if the login lacks a right."""
        if login is None:
            if needed:
                raise UnauthorizedError("no user")
            return RapiLogin(Caller("", None, frozenset()), ())
        if needed and not needed & set(login.levels):
            raise RapiError(HTTPStatus.FORBIDDEN)
        return login


def _of(caller: Caller) -> RapiLogin:
    levels = {level for role, level in _LEVELS.items() if caller.has_role(role)}
    return RapiLogin(caller, A_USER | levels | (OPERATORS if caller.is_admin else ANYBODY))


def _name_and_password(header: str) -> tuple[str, str]:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        raise UnauthorizedError(f"unknown scheme {scheme!r}")
    if not encoded.strip():
        raise RapiError(HTTPStatus.BAD_REQUEST, "Basic authentication needs a name and a password")
    try:
        name, colon, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:
        colon = ""
    if not colon:
        raise UnauthorizedError("no name and password")
    return name, password
